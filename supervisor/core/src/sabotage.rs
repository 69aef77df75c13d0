//! Mistakes that can be planted in the core, one at a time, to see whether the simulator finds them. Each is one
//! condition at the place where somebody could have made it.
//!
//! Only a build with the cargo feature `sabotage`, which the tests ask for, can plant one. In any other build the type
//! has no size, the conditions are constants, and nothing of this is left.

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident),+ $(,)?) => {
        /// A mistake that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($(#[$doc])* $bug),+ }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$bug),+];
        }
    };
}

bugs! {
    /// A job that comes back from a worker is put nowhere.
    RequeueLost,
    /// The end of a job is told twice.
    ToldTwice,
    /// One attempt more than allowed.
    AttemptTooMany,
    /// A job that must not run twice is tried again.
    IdempotenceIgnored,
    /// One job more than the queue takes.
    QueueOneTooLong,
    /// The bytes of a job that has ended stay in the ledger.
    BytesNotReturned,
    /// The deadline of a job that has ended stays in the list.
    DeadlineNotRemoved,
    /// A deadline counts before the answers that came in time are read.
    DeadlineBeforeAnswers,
    /// A running job is not ended when its deadline comes.
    DeadlineOfRunningIgnored,
    /// A cancelled job stays in its queue.
    CancelledStaysQueued,
    /// The spare is given jobs.
    SpareWorks,
    /// A worker that has done a job is not listed as free.
    SlotNotListed,
    /// The patience with one job goes on with the next one.
    PatienceNotRenewed,
    /// A job may run for ever.
    RunHasNoLimit,
    /// A worker may say twice that it has started.
    StartedTwice,
    /// A worker that breaks a rule goes on.
    ViolatorTrusted,
    /// A job that was thrown away as told is still expected.
    SkippedStillExpected,
    /// A worker that does not end of SIGTERM is forgotten.
    NeverKilled,
    /// A job is given up when some workers have ended before they had started it.
    ReturnsLimited,
    /// A job that no worker lives to start is tried for as long as anybody lets it.
    HopelessTriedForEver,
    /// A job that nobody wants any more is tried again.
    AbandonedTriedAgain,
    /// A job whose worker has ended is given to workers that have others, or others are given to its worker.
    SuspectsHaveCompany,
    /// A job whose worker has ended lets others in between its steps.
    SuspectsLetOthersIn,
    /// A job goes from one dying worker to the next without a pause.
    NoPauseBetweenReturns,
    /// The first job that had not been started is blamed for the end of its worker.
    UnstartedBlamed,
    /// What a worker says that it started counts for nothing once it has broken a rule.
    LiarsBeginNothing,
    /// A job that may have begun, and must not run again, is run again.
    DoubtIgnored,
    /// A job that must not run again, and was lost because of another, is blamed.
    InnocentBlamed,
    /// What ran out of time is not among the attempts that a job has lost.
    TimeoutNamesNoAttempt,
    /// A client whose jobs end workers pays nothing for them.
    WorkerCostsNothing,
    /// A job that only the spare can do waits for a worker that can.
    SpareKeepsItsTasks,
    /// What some process of the program promises counts, not what the one promised that ran the job.
    PromiseOfAnother,
    /// A program that has failed to start is not tried again.
    BreakerStaysOpen,
    /// A program that fails to start is tried again at once.
    NoPauseBetweenStarts,
    /// Failed starts are never forgotten.
    FailuresNotForgotten,
    /// Jobs are taken while draining.
    DrainTakesJobs,
    /// A drain is over while jobs are parked.
    DrainForgetsParked,
    /// A second request to drain puts the end off.
    LaterDrainCounts,
    /// Nobody is told how many jobs the end has cancelled.
    CutShortNotCounted,
    /// A key does not keep a job from being taken twice.
    KeyIgnored,
    /// Keys, and results that nobody has taken, are forgotten when there are many of them.
    KeysEvictedByNumber,
    /// A result is kept for half its time.
    ResultForgottenEarly,
    /// What is kept is never forgotten.
    PromiseNeverEnds,
    /// Whoever wants something kept is never refused.
    PromisesUnbounded,
    /// An output that was collected counts as if it had not been.
    CollectedStillKept,
    /// The output of a job that was started when there was room is given up when there is none left.
    OutputGivenUp,
    /// Somebody who waited for a job and went away counts as if he waited.
    WaiterNeverLeaves,
    /// Jobs whose outputs there is no room for are run.
    NoRoomIgnored,
    /// A job that was held back until there is room stays back.
    HeldForEver,
    /// A dead letter makes room for another one.
    LetterEvicted,
    /// A worker that is stopped is given jobs.
    StopIgnored,
    /// A stop does not end what runs.
    StopForgetsRunning,
    /// The time in which others ran counts as run time of a suspended job.
    SuspendedClockRuns,
    /// A suspended job is blamed for the end of its worker.
    SuspendedBlamed,
    /// A job that must not be lost with another is run between its steps.
    AnyoneLetIn,
    /// A job does not go on from its checkpoint.
    ResumeForgotten,
    /// A worker need not say how far its job is, whatever it promised.
    HangUnnoticed,
    /// A reload is answered twice.
    ReloadToldTwice,
    /// A version that does not start stays on trial.
    TrialNeverTakenBack,
    /// A worker whose replacement is ready is given jobs.
    ClosingTakesJobs,
    /// A place that is one too many is filled again.
    SurplusRefilled,
    /// Clients pay nothing.
    ChargeForgotten,
    /// A client without jobs stays listed under what it had used before.
    RestingNotMoved,
    /// A start that had to wait has no time left for its hello.
    LaunchUnnoticed,
    /// A start that fails when it was given up is waited for.
    LateFailureUnnoticed,
    /// A program that never says anything is waited for as often as one that fails in another way.
    SilenceRetried,
    /// An output is on nobody's account.
    OutputNotCounted,
    /// An output that was read stays on its client's account.
    OutputNeverReleased,
    /// A client may send as much as there is room for.
    ShareIgnoredAtTheDoor,
    /// What a client has of outputs counts as it was when its job began to wait.
    LevelForgotten,
    /// A client that does not read its outputs gets more of them.
    ShareIgnoredAtTheStart,
}

/// The mistake that is planted, if one is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sabotage {
    #[cfg(feature = "sabotage")]
    planted: Option<Bug>,
}

impl Sabotage {
    /// Whether this mistake is planted.
    #[cfg(feature = "sabotage")]
    pub(super) fn is(self, bug: Bug) -> bool {
        self.planted == Some(bug)
    }

    /// Whether this mistake is planted: never in this build.
    #[cfg(not(feature = "sabotage"))]
    pub(super) const fn is(self, _: Bug) -> bool {
        false
    }
}

impl super::Core {
    /// Spoils a job that is about to be forgotten, if that is the mistake.
    pub(super) fn spoil(&mut self, id: super::ids::JobId) {
        let sabotage = self.sabotage;
        let Some(job) = self.jobs.get_mut(id) else { return };
        if sabotage.is(Bug::BytesNotReturned) {
            job.input_bytes = 0;
        }
        if sabotage.is(Bug::DeadlineNotRemoved) {
            job.deadline = None;
        }
    }
}

#[cfg(feature = "sabotage")]
impl super::Core {
    /// Plants a mistake.
    pub fn sabotage(&mut self, bug: Bug) {
        self.sabotage.planted = Some(bug);
    }
}
