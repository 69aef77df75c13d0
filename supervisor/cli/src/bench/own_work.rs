//! Jobs of which only their workers know what they are: a program of somebody's own, or a task with inputs of their own.
//!
//! Nobody can tell which output is right, so each input is given to a worker once before the measurement, and what it gives
//! later is compared with that. This also finds out whether the program works at all.

use super::super::embedded::{advice_for, explained, new_event_loop, not_started};
use super::super::failure::Failure;
use super::super::input::{Content, Input};
use super::super::render;
use super::strategy::{broken, job};
use super::workload::{Cut, Inputs, Workload};
use crate::limits::BENCH_INPUTS_MAX;
use bytes::Bytes;
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::{ComputePool, Finished, PoolConfig};
use offload_worker::TaskError;
use offload_worker::exec::{ExecTask, has_place_for_input};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::rc::Rc;

/// See the module's documentation.
pub(super) struct OwnWork {
    task: String,
    inputs: Vec<(Bytes, MediaType)>,
}

impl OwnWork {
    /// Jobs of this task, with these inputs in turn, each of at most `max_payload` bytes. With none, the input is what is piped
    /// in, or empty.
    ///
    /// # Errors
    /// An input cannot be read, or there are more than [`BENCH_INPUTS_MAX`].
    pub(super) fn load(
        task: String,
        mut inputs: Vec<Input>,
        exec: Option<&ExecTask>,
        max_payload: u64,
    ) -> Result<OwnWork, Failure> {
        let count = inputs.len();
        if count > BENCH_INPUTS_MAX {
            return Err(Failure::Usage(format!(
                "--input: {count} inputs; it must be 1 to {BENCH_INPUTS_MAX}"
            )));
        }
        if inputs.is_empty() {
            inputs.push(Input::unnamed());
        }
        if inputs.iter().filter(|input| **input == Input::Stdin).count() > 1 {
            return Err(Failure::Usage("--input: standard input (-) can be one input only".to_owned()));
        }
        let is_word = exec.is_some_and(|exec| has_place_for_input(&exec.words));
        let load = |input: Input| load(if is_word { input.named() } else { input }, max_payload);
        Ok(OwnWork { task, inputs: inputs.into_iter().map(load).collect::<Result<_, _>>()? })
    }

    /// What the workers of such a pool give for each input.
    ///
    /// # Errors
    /// That of the first job that failed, in the order of the inputs.
    pub(super) fn first_outputs(&self, config: &PoolConfig) -> Result<Vec<Bytes>, Failure> {
        let mut event_loop = new_event_loop()?;
        let advice = advice_for(&config.programs);
        let pool = ComputePool::start(config.clone(), &event_loop).map_err(not_started)?;
        let all: Rc<RefCell<Vec<Option<Finished>>>> = Rc::new(RefCell::new(vec![None; self.inputs.len()]));
        for number in 0..self.inputs.len() {
            let all = Rc::clone(&all);
            pool.submit(job(self, number), move |finished, _cx| all.borrow_mut()[number] = Some(finished));
        }
        event_loop.run().map_err(broken)?;
        let all = all.take();
        all.into_iter().flatten().map(|finished| output(finished, advice)).collect()
    }
}

fn load(input: Input, max_payload: u64) -> Result<(Bytes, MediaType), Failure> {
    let unreadable = |message| Failure::Unreadable(message);
    let payload = input.load(max_payload).map_err(|why| unreadable(why.message))?;
    match payload.content {
        Content::Bytes(bytes) => Ok((bytes, payload.media_type)),
        Content::File(_) => Err(unreadable("this input was not read".to_owned())),
    }
}

fn output(finished: Finished, advice: Option<&str>) -> Result<Bytes, Failure> {
    let finished = explained(finished, advice);
    match finished.report.outcome {
        OutcomeCode::Ok => Ok(finished.output),
        _ => Err(Failure::of(&finished.report, render::message(&finished.report))),
    }
}

impl Workload for OwnWork {
    type Answer = Bytes;
    type Steps = Infallible;
    const CUT: Cut = Cut::WorkersOnly;

    fn task(&self) -> &str {
        &self.task
    }

    fn size(&self) -> Option<u64> {
        None
    }

    fn inputs(&self) -> Inputs {
        let bytes = self.inputs.iter().map(|(bytes, _)| bytes.len() as u64).sum();
        Inputs { count: self.inputs.len(), bytes }
    }

    fn inputs_digest(&self) -> Option<String> {
        let mut hasher = Sha256::new();
        for (bytes, _) in &self.inputs {
            hasher.update((bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        }
        Some(hasher.finalize().iter().fold("sha256:".to_owned(), |hex, byte| hex + &format!("{byte:02x}")))
    }

    fn in_one_go(&self) -> Result<Bytes, TaskError> {
        Err(TaskError::new("only workers can do this"))
    }

    fn in_steps(&self) -> Infallible {
        unreachable!("it has no steps")
    }

    fn step(steps: &mut Infallible) -> ControlFlow<Result<Bytes, TaskError>> {
        match *steps {}
    }

    fn input(&self, number: usize) -> Bytes {
        self.inputs[number].0.clone()
    }

    fn media_type(&self, number: usize) -> MediaType {
        self.inputs[number].1.clone()
    }

    fn output(answer: &Bytes) -> Bytes {
        answer.clone()
    }
}
