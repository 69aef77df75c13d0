//! What can go wrong, and how often in one run. Each kind of fault is on or off, and has a probability of its own.

use crate::choices::{Choices, Tape};
use crate::script::Guilt;

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident),+ $(,)?) => {
        /// One kind of fault. In the descriptions, "it" is a worker process.
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
    /// The process cannot be started, and trying again is pointless.
    SpawnFailsForEver,
    /// Starting it, or finding out that it cannot be started, takes long.
    SpawnSlow,
    /// It starts and says nothing.
    BootSilent,
    /// It says hello late.
    BootSlow,
    /// It ends before it has said hello.
    BootCrash,
    /// It ends before it has said hello, with the code that says that starting it again is pointless.
    BootGivesUp,
    /// It is another program, or speaks another version of the protocol.
    BootUnfit,
    /// It offers a task with an invalid name.
    BootBadName,
    /// It offers fewer tasks than its predecessors.
    BootOffersLess,
    /// It promises the opposite of what others promise for a task: that it may, or may not, be run twice.
    BootPromisesOther,
    /// It ends while it is idle.
    CrashIdle,
    /// It ends when it gets a job.
    CrashBeforeStart,
    /// It ends while it runs a job.
    CrashRunning,
    /// It ends right after an answer.
    CrashAfterReply,
    /// SIGKILL from outside, at any moment.
    KilledFromOutside,
    /// It gets a job and does nothing.
    Stuck,
    /// A job never ends.
    Hang,
    /// A job takes longer than it may.
    SlowRun,
    /// SIGTERM does not end it.
    IgnoresTerm,
    /// It is dead, and that is reported late.
    ExitLate,
    /// Another process holds its channel too, so the channel does not end with it.
    ChannelHeld,
    /// It closes its channel and goes on running.
    ClosesChannel,
    /// Its channel is slow.
    SlowChannel,
    /// It sends bytes that are no message.
    Garbage,
    /// It says that it started or ended a job that was not given to it.
    WrongJob,
    /// It names the wrong attempt.
    WrongAttempt,
    /// It says twice that it started.
    StartsTwice,
    /// It answers twice.
    EndsTwice,
    /// It does a job without saying before that it starts it.
    StartUnsaid,
    /// It says that it started the next job before that job can have arrived.
    Guesses,
    /// The shell cannot write to it for a while.
    WriteBlocked,
    /// It skips a job that was not cancelled.
    SkipsUnasked,
    /// It says hello again.
    HelloTwice,
    /// An event about it comes after its exit was reported.
    Ghost,
    /// It is stopped, by SIGSTOP for example.
    Stops,
    /// It is stopped, and never continued.
    StaysStopped,
    /// It reports progress and gives a checkpoint. (This is no fault, but not all workers do it.)
    SaysMore,
    /// It stops reporting the progress that it promised to report.
    GoesQuiet,
    /// It is asked to give its job back, and does not do so.
    IgnoresYield,
    /// It gives its job back without being asked.
    YieldsUnasked,
    /// Its tray cannot be used any more.
    TrayFails,
    /// It does not look into its tray when it could.
    IgnoresTray,
    /// It takes the job out of its tray while another one runs.
    TakesEarly,
    /// The task returns an error.
    AppError,
    /// The task panics.
    Panic,
    /// The shell is late with its tick.
    LateTick,
    /// The shell itself is stopped for some time. When it continues, it tells the core what came meanwhile, and then the
    /// tick.
    ShellStops,
    /// It sends a part that is too long or empty, of a job that does not run there, or of another attempt.
    WrongPart,
    /// It takes no inputs that are files.
    TakesNoFiles,
    /// The program behind it has not taken the job that it has started, and it ends.
    TakesBackStart,
    /// It takes back the start of a job that has begun, or that it was not given; or it goes on with one whose start it took back.
    TakesBackWrongly,
    /// The program behind it breaks its rules, with the job that runs or with another one, and it ends.
    BreaksRules,
}

/// What a version of a program is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// It works.
    Works,
    /// It cannot be started.
    DoesNotStart,
    /// It ends before its hello.
    DiesAtOnce,
    /// It ends a little later, whatever it does.
    DiesSoon,
    /// Its first jobs fail.
    FailsFirst,
    /// It ends with its first job, while that runs or before it is started.
    DiesAtWork(Guilt),
    /// Its first job never ends.
    Hangs,
}

/// How often each fault happens, in a thousand cases.
#[derive(Clone, Debug)]
pub(crate) struct FaultPlan {
    per_mille: Vec<u16>,
}

impl FaultPlan {
    /// Chooses the faults of one run. One run in eight has none, so that everything else is tested at full speed.
    pub(crate) fn swarm(choices: &mut Choices, tape: &mut Tape) -> FaultPlan {
        let share = choices.pick(tape, &[0, 60, 60, 150, 150, 300, 300, 500]);
        let mut draw = |_| match choices.chance(tape, share) {
            true => choices.pick(tape, &[10, 30, 100, 300, 600, 1000]),
            false => 0,
        };
        FaultPlan { per_mille: Fault::ALL.iter().map(&mut draw).collect() }
    }

    /// The same, but without faults at the start of processes.
    pub(crate) fn with_good_starts(mut self) -> FaultPlan {
        self.per_mille[..=Fault::BootOffersLess as usize].fill(0);
        self
    }

    /// For a run in which jobs end their workers: in half of the cases there are no other faults, in the other half all but
    /// those at the start of processes.
    pub(crate) fn of_others(choices: &mut Choices, tape: &mut Tape) -> FaultPlan {
        match choices.chance(tape, 500) {
            true => FaultPlan::swarm(choices, tape).with_good_starts(),
            false => FaultPlan::none(),
        }
    }

    /// Whether there are no faults except those that jobs cause.
    pub(crate) fn is_none(&self) -> bool {
        self.per_mille.iter().all(|chance| *chance == 0)
    }

    /// No faults.
    pub(crate) fn none() -> FaultPlan {
        FaultPlan { per_mille: vec![0; Fault::ALL.len()] }
    }

    /// Decides at random whether this fault happens now.
    pub(crate) fn strikes(&self, fault: Fault, choices: &mut Choices, tape: &mut Tape) -> bool {
        choices.chance(tape, self.per_mille[fault as usize])
    }
}
