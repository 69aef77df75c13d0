//! The command-line flags of the settings, generated from the [`TABLE`] for clap. A verb flattens a group of flags into
//! its own:
//!
//! ```text
//!   #[command(flatten)]
//!   serve: KeyFlags<Supervision>,        // the flags of all keys of that group
//! ```

use super::batches::parse_batch;
use super::key::{Group, Key, ValueKind};
use super::table::TABLE;
use super::value::Value;
use super::weights::parse_weight;
use super::{ConfigError, Layer, Origin, Settings, read_environment};
use clap::builder::{BoolValueParser, OsStringValueParser, TypedValueParser, ValueParser};
use clap::error::{Error, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// The keys of one group, as a type, so that each group of flags is one that clap can flatten.
pub(crate) trait Choice {
    /// The group.
    const GROUP: Group;
    /// The heading of their flags in the help. With none, they stay under the heading of the flags before them.
    const HEADING: Option<&'static str>;
}

macro_rules! choice {
    ($group:ident, $heading:expr) => {
        #[doc = concat!("The keys of [`Group::", stringify!($group), "`].")]
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct $group;

        impl Choice for $group {
            const GROUP: Group = Group::$group;
            const HEADING: Option<&'static str> = $heading;
        }
    };
}

choice!(Everywhere, Some("Global options"));
choice!(NumberOfWorkers, None);
choice!(Programs, Some("Workers"));
choice!(Queue, Some("Workers"));
choice!(Supervision, Some("Supervision"));

fn keys_of<C: Choice>() -> impl Iterator<Item = &'static Key> {
    TABLE.iter().filter(|key| key.group == C::GROUP)
}

/// The values that were typed for the flags of these keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyFlags<C> {
    layer: Layer,
    choice: PhantomData<C>,
}

impl<C> Default for KeyFlags<C> {
    fn default() -> KeyFlags<C> {
        KeyFlags { layer: Layer::new(Origin::Flag), choice: PhantomData }
    }
}

impl<C: Choice> KeyFlags<C> {
    /// The typed values, as a layer.
    pub(crate) fn layer(&self) -> Layer {
        self.layer.clone()
    }

    /// The first of them that was given, as it is typed.
    pub(crate) fn first_given(&self) -> Option<String> {
        let given = keys_of::<C>().find(|key| self.layer.values.contains_key(key.name));
        given.map(|key| format!("--{}", key.flag))
    }

    /// What the environment says of these keys.
    ///
    /// # Errors
    /// [`ConfigError`] if it is no value.
    pub(crate) fn environment() -> Result<Layer, ConfigError> {
        read_environment(keys_of::<C>(), |name| std::env::var_os(name))
    }

    /// Whether the configuration file decides any of these keys.
    pub(crate) fn are_of_the_file(settings: &Settings) -> bool {
        keys_of::<C>().any(|key| settings.origin(key.name) == Origin::File)
    }
}

impl<C: Choice> Args for KeyFlags<C> {
    fn augment_args(command: Command) -> Command {
        match C::HEADING {
            Some(heading) => command.next_help_heading(heading),
            None => command,
        }
        .args(keys_of::<C>().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: Choice> FromArgMatches for KeyFlags<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<KeyFlags<C>, Error> {
        let mut flags = KeyFlags::default();
        for key in keys_of::<C>() {
            let mut typed = matches.get_many::<Value>(key.flag).into_iter().flatten().cloned();
            let Some(first) = typed.next() else { continue };
            let place = format!("--{}", key.flag);
            let value = typed
                .try_fold(first, Value::and)
                .map_err(|reason| Error::raw(ErrorKind::ValueValidation, format!("{place}: {reason}\n")))?;
            flags.layer.set(key, value, place);
        }
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = KeyFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(key: &'static Key) -> Arg {
    let argument = Arg::new(key.flag)
        .long(key.flag)
        .value_name(value_name(key))
        .value_parser(value_parser(key))
        .help(help(key))
        .global(key.group == Group::Everywhere);
    match key.kind {
        ValueKind::Commands
        | ValueKind::TaskLists
        | ValueKind::Weights
        | ValueKind::Batches
        | ValueKind::Programs
        | ValueKind::Texts(_)
        | ValueKind::Routes => argument.action(ArgAction::Append),
        ValueKind::Switch => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        ValueKind::Path | ValueKind::File => argument.value_hint(ValueHint::AnyPath),
        ValueKind::Count(_) | ValueKind::Bytes(_) | ValueKind::Time(_) | ValueKind::Word(_) => argument,
    }
}

fn help(key: &Key) -> String {
    let form = match key.kind {
        ValueKind::Weights => "=NAME=N,...",
        ValueKind::Batches => "=TASK=MAX/WAIT,...",
        _ => "",
    };
    format!("{} [default: {}] [env: {}{form}]", key.about, key.default(), key.variable())
}

/// The placeholder for a value of this key in the help.
pub(super) fn value_name(key: &Key) -> &'static str {
    match key.kind {
        ValueKind::Count(_) => "N",
        ValueKind::Bytes(_) => "SIZE",
        ValueKind::Time(_) => "DURATION",
        ValueKind::Switch => "BOOL",
        ValueKind::Path | ValueKind::File => "PATH",
        ValueKind::Word(_) => "WORD",
        ValueKind::Texts(kind) => kind.placeholder(),
        ValueKind::Commands => "CMD ARG...",
        ValueKind::TaskLists => "TASK,...",
        ValueKind::Weights => "NAME=N",
        ValueKind::Routes => "METHOD PATH TASK",
        ValueKind::Batches => "TASK=MAX/WAIT",
        ValueKind::Programs => "NAME -- CMD ARG...",
    }
}

fn value_parser(key: &'static Key) -> ValueParser {
    match key.kind {
        ValueKind::Switch => BoolValueParser::new().map(Value::Switch).into(),
        ValueKind::Weights => ValueParser::from(move |text: &str| {
            let value = Value::Weights(BTreeMap::from([parse_weight(text)?]));
            key.check(&value).map(|()| value)
        }),
        ValueKind::Batches => ValueParser::from(move |text: &str| {
            let value = Value::Batches(BTreeMap::from([parse_batch(text)?]));
            key.check(&value).map(|()| value)
        }),
        _ => OsStringValueParser::new().try_map(move |text| key.parse(&text)).into(),
    }
}
