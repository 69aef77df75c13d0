//! The states of a job that has not ended, each declared once: whoever lists or filters them asks here.

/// A state of a job that has not ended. Of one that has ended, the state is its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenState {
    /// No worker has said yet whether it has the task. Lists of jobs call that `queued`.
    Parked,
    /// It waits for its turn.
    Queued,
    /// Its task, or all tasks, are paused.
    Paused,
    /// There is no room to keep its output.
    Held,
    /// A worker has it and has not begun. Lists of jobs call that `running`.
    Assigned,
    /// A worker has begun it, or a thread of the supervisor.
    Running,
}

impl OpenState {
    /// All of them, in the order in which a job may go through them.
    pub const ALL: [OpenState; 6] = [
        OpenState::Parked,
        OpenState::Queued,
        OpenState::Paused,
        OpenState::Held,
        OpenState::Assigned,
        OpenState::Running,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            OpenState::Parked => "parked",
            OpenState::Queued => "queued",
            OpenState::Paused => "paused",
            OpenState::Held => "held",
            OpenState::Assigned => "assigned",
            OpenState::Running => "running",
        }
    }

    /// The state with this word. None if it is an outcome: the job has ended.
    pub fn of_word(word: &str) -> Option<OpenState> {
        OpenState::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether no worker has the job.
    pub fn waits(self) -> bool {
        match self {
            OpenState::Parked | OpenState::Queued | OpenState::Paused | OpenState::Held => true,
            OpenState::Assigned | OpenState::Running => false,
        }
    }

    /// The state as lists of jobs have it, which tell fewer apart.
    #[must_use]
    pub fn in_lists(self) -> OpenState {
        match self {
            OpenState::Parked => OpenState::Queued,
            OpenState::Assigned => OpenState::Running,
            OpenState::Queued | OpenState::Paused | OpenState::Held | OpenState::Running => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_for_python_takes_the_same_states_for_waiting() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../worker/python/offload/_client.py");
        let source = std::fs::read_to_string(path).expect("it is in the same checkout");
        let line = source.lines().find(|line| line.trim_start().starts_with("return state in ("));
        let line = line.expect("its list");
        for state in OpenState::ALL.into_iter().filter(|state| state.in_lists() == *state) {
            assert_eq!(line.contains(&format!("\"{}\"", state.as_str())), state.waits(), "{state:?}");
        }
    }

    #[test]
    fn each_word_is_that_of_one_state_and_no_outcome_is_one() {
        for state in OpenState::ALL {
            assert_eq!(OpenState::of_word(state.as_str()), Some(state));
        }
        assert_eq!(OpenState::of_word("ok"), None);
    }
}
