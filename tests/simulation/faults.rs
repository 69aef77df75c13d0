//! What can go wrong, and how often in one run: each class of faults is on or off, with a chance of its own.

use crate::choices::{Choices, Tape};

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident),+ $(,)?) => {
        /// One way in which the world can be against us.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault { $($(#[$doc])* $fault),+ }

        impl Fault {
            const ALL: &'static [Fault] = &[$(Fault::$fault),+];
        }
    };
}

faults! {
    /// The process cannot be started.
    SpawnFails,
    /// ... and will never be.
    SpawnFailsForEver,
    /// It takes long to start it, or to find out that it cannot be started.
    SpawnSlow,
    /// It starts and says nothing.
    BootSilent,
    /// It says hello late.
    BootSlow,
    /// It ends before it has said hello.
    BootCrash,
    /// ... with the code that says that starting it again is pointless.
    BootGivesUp,
    /// It is another program, or another version.
    BootUnfit,
    /// It offers something that has no proper name.
    BootBadName,
    /// It offers less than its predecessors.
    BootOffersLess,
    /// It promises the opposite of what others promise of a task: that it may, or may not, be run twice.
    BootPromisesOther,
    /// It ends while it has nothing to do.
    CrashIdle,
    /// It ends when it gets a job.
    CrashBeforeStart,
    /// It ends while it runs a job.
    CrashRunning,
    /// It ends right after a reply.
    CrashAfterReply,
    /// SIGKILL from outside, at any moment.
    KilledFromOutside,
    /// It gets a job and does nothing.
    Stuck,
    /// A job never ends.
    Hang,
    /// A job takes longer than it may.
    SlowRun,
    /// It does not end of SIGTERM.
    IgnoresTerm,
    /// It is dead and nobody is told for long.
    ExitLate,
    /// Something else holds its channel, which does not end with it.
    ChannelHeld,
    /// It closes its channel and lives on.
    ClosesChannel,
    /// Its channel is slow.
    SlowChannel,
    /// It sends what is no message.
    Garbage,
    /// It says that it started, or ended, a job that is not its own.
    WrongJob,
    /// It names the wrong attempt.
    WrongAttempt,
    /// It says twice that it started.
    StartsTwice,
    /// It says twice that it is done.
    EndsTwice,
    /// It does a job and does not say before that it starts it.
    StartUnsaid,
    /// It says that it started the next job before it can know of it.
    Guesses,
    /// The shell cannot write to it for a while.
    WriteBlocked,
    /// It throws a job away that is still wanted.
    SkipsUnasked,
    /// It says hello again.
    HelloTwice,
    /// It is heard of after its end.
    Ghost,
    /// It is stopped, by SIGSTOP for example.
    Stops,
    /// ... and nobody lets it go on.
    StaysStopped,
    /// It tells its progress and gives a checkpoint. (No fault, but not all do it.)
    SaysMore,
    /// It does not say any more how far its job is, as it promised.
    GoesQuiet,
    /// It is asked to give its job back, and does not.
    IgnoresYield,
    /// It gives its job back, and nobody has asked for it.
    YieldsUnasked,
    /// The task returns an error.
    AppError,
    /// The task panics.
    Panic,
    /// The shell is late with its tick.
    LateTick,
    /// The shell itself is stopped, for any time: what comes meanwhile is told when it goes on, and then the tick.
    ShellStops,
}

/// How often each fault happens, in a thousand cases.
#[derive(Clone, Debug)]
pub(crate) struct FaultPlan {
    per_mille: Vec<u16>,
}

impl FaultPlan {
    /// A plan for one run. One in eight has no faults at all, so that the rest is seen at its full speed.
    pub(crate) fn swarm(choices: &mut Choices, tape: &mut Tape) -> FaultPlan {
        let share = choices.pick(tape, &[0, 60, 60, 150, 150, 300, 300, 500]);
        let mut draw = |_| match choices.chance(tape, share) {
            true => choices.pick(tape, &[10, 30, 100, 300, 600, 1000]),
            false => 0,
        };
        FaultPlan { per_mille: Fault::ALL.iter().map(&mut draw).collect() }
    }

    /// The same, but each process starts as it should.
    pub(crate) fn with_good_starts(mut self) -> FaultPlan {
        self.per_mille[..=Fault::BootOffersLess as usize].fill(0);
        self
    }

    /// For a run in which jobs do wrong: in half of the cases nothing else goes wrong, in the others all but starts.
    pub(crate) fn of_others(choices: &mut Choices, tape: &mut Tape) -> FaultPlan {
        match choices.chance(tape, 500) {
            true => FaultPlan::swarm(choices, tape).with_good_starts(),
            false => FaultPlan::none(),
        }
    }

    /// Whether nothing can go wrong but by the jobs themselves.
    pub(crate) fn is_none(&self) -> bool {
        self.per_mille.iter().all(|chance| *chance == 0)
    }

    /// No faults.
    pub(crate) fn none() -> FaultPlan {
        FaultPlan { per_mille: vec![0; Fault::ALL.len()] }
    }

    /// Whether it happens now.
    pub(crate) fn strikes(&self, fault: Fault, choices: &mut Choices, tape: &mut Tape) -> bool {
        choices.chance(tape, self.per_mille[fault as usize])
    }
}
