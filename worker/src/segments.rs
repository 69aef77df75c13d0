//! Shared memory for large payloads: inputs that the supervisor has written into it, and outputs that go there.
//!
//! ```text
//!   Segment, with a descriptor ---> mapped: SegmentReady ---> SegmentGone: unmapped, SegmentLeft
//!
//!   InputIn, Run ---> the task's input points into the segment for inputs
//!     the task returns a part of its input ----------> OutputIn: that place
//!     it returns something else that is large -------> copied into the segment for outputs, OutputIn ---> OutputRead
//!     nobody holds the input any more ---------------> the supervisor may use the segment again
//!     somebody does ---------------------------------> SegmentLeft: the segment stays until that is over
//! ```
//!
//! What cannot be done this way is sent as if there were no segments: nothing here can fail a job.

use crate::sys::{Mapped, Mapping};
use bytes::Bytes;
use offload_protocol::limits::{SEGMENT_PAYLOAD_MIN, SEGMENT_START};
use offload_protocol::messages::{FromWorker, SegmentUse};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Segments {
    inputs: Option<Inputs>,
    outputs: Option<Outputs>,
    /// Where the input of the next Run is.
    announced: Option<Announced>,
}

struct Inputs {
    id: u32,
    mapping: Arc<Mapping>,
    /// The job whose input is in it.
    job: Option<u64>,
}

struct Outputs {
    id: u32,
    mapping: Mapping,
    /// Whether the supervisor has still to read the last output.
    is_unread: bool,
}

struct Announced {
    job: u64,
    input: Bytes,
}

/// Where an output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OutputPlace {
    segment: u32,
    offset: usize,
    length: usize,
}

impl Segments {
    /// The supervisor has sent a segment. Returns the answer.
    pub(crate) fn add(
        &mut self,
        (id, bytes): (u32, u64),
        holds: SegmentUse,
        descriptor: Option<OwnedFd>,
    ) -> FromWorker<'static> {
        let access = match holds {
            SegmentUse::Inputs => Mapped::ToRead,
            SegmentUse::Outputs => Mapped::ToWrite,
        };
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mapping = descriptor.and_then(|descriptor| Mapping::new(&descriptor, length, access).ok());
        let Some(mapping) = mapping else { return FromWorker::SegmentLeft { segment: id } };
        match holds {
            SegmentUse::Inputs => {
                self.inputs = Some(Inputs { id, mapping: Arc::new(mapping), job: None });
            }
            SegmentUse::Outputs => self.outputs = Some(Outputs { id, mapping, is_unread: false }),
        }
        FromWorker::SegmentReady { segment: id }
    }

    /// The supervisor does not use a segment any more. Returns the answer; none if it was left already.
    pub(crate) fn remove(&mut self, id: u32) -> Option<FromWorker<'static>> {
        let input = self.inputs.take_if(|inputs| inputs.id == id).is_some();
        let output = self.outputs.take_if(|outputs| outputs.id == id).is_some();
        (input || output).then_some(FromWorker::SegmentLeft { segment: id })
    }

    /// The supervisor has read the output in this segment.
    pub(crate) fn output_read(&mut self, id: u32) {
        if let Some(outputs) = self.outputs.as_mut().filter(|outputs| outputs.id == id) {
            outputs.is_unread = false;
        }
    }

    /// The input of the next Run is in a segment. False if it cannot be there.
    pub(crate) fn announce(&mut self, job: u64, id: u32, offset: u64, length: u64) -> bool {
        let Some(inputs) = self.inputs.as_mut().filter(|inputs| inputs.id == id) else { return false };
        let whole = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let Some(part) = inputs.mapping.part(whole(offset), whole(length)) else { return false };
        inputs.job = Some(job);
        self.announced = Some(Announced { job, input: Bytes::from_owner(part) });
        true
    }

    /// The input of this job, if it was announced.
    pub(crate) fn take_input(&mut self, job: u64) -> Option<Bytes> {
        self.announced.take_if(|announced| announced.job == job).map(|announced| announced.input)
    }

    /// A job has ended, with this output if it has any. The messages to be sent before its answer are added to `before`. Returns
    /// what is to be sent with the answer.
    pub(crate) fn end(&mut self, job: u64, output: Bytes, before: &mut Vec<FromWorker<'static>>) -> Bytes {
        let (output, place) = self.in_input(job, output);
        let (left, output, place) = self.release_input(job, output, place);
        before.extend(left.map(|segment| FromWorker::SegmentLeft { segment }));
        let place = place.or_else(|| self.in_outputs(&output));
        let Some(OutputPlace { segment, offset, length }) = place else { return output };
        before.push(FromWorker::OutputIn { job, segment, offset: offset as u64, length: length as u64 });
        Bytes::new()
    }

    /// If the output is a large part of the job's input: where it is, instead of the output.
    fn in_input(&self, job: u64, output: Bytes) -> (Bytes, Option<OutputPlace>) {
        let of_job = |inputs: &&Inputs| inputs.job == Some(job);
        let place = self.inputs.as_ref().filter(of_job).and_then(|Inputs { id, mapping, .. }| {
            let offset = mapping.offset_of(&output)?;
            Some(OutputPlace { segment: *id, offset, length: output.len() })
        });
        match place.filter(|place| place.length >= SEGMENT_PAYLOAD_MIN) {
            Some(place) => (Bytes::new(), Some(place)),
            None => (output, None),
        }
    }

    /// The input of a job is not needed any more, unless somebody still holds it: then the segment is left, and an output in it
    /// is taken out again. Returns the segment that is left.
    fn release_input(
        &mut self,
        job: u64,
        mut output: Bytes,
        place: Option<OutputPlace>,
    ) -> (Option<u32>, Bytes, Option<OutputPlace>) {
        let Some(inputs) = self.inputs.as_mut().filter(|inputs| inputs.job == Some(job)) else {
            return (None, output, place);
        };
        inputs.job = None;
        // A small output may point into the input too.
        if inputs.mapping.offset_of(&output).is_some() {
            output = Bytes::copy_from_slice(&output);
        }
        if Arc::get_mut(&mut inputs.mapping).is_some() {
            return (None, output, place);
        }
        let id = inputs.id;
        let part = place.and_then(|place| inputs.mapping.part(place.offset, place.length));
        self.inputs = None;
        (Some(id), part.map_or(output, Bytes::from_owner), None)
    }

    /// Copies a large output into the segment for outputs, if that is free and long enough.
    fn in_outputs(&mut self, output: &Bytes) -> Option<OutputPlace> {
        let outputs = self.outputs.as_mut().filter(|outputs| !outputs.is_unread)?;
        if output.len() < SEGMENT_PAYLOAD_MIN || !outputs.mapping.write(SEGMENT_START, output) {
            return None;
        }
        outputs.is_unread = true;
        Some(OutputPlace { segment: outputs.id, offset: SEGMENT_START, length: output.len() })
    }
}

#[cfg(test)]
mod tests {
    use crate::test_supervisor::{Said, Serving, TestSupervisor};
    use crate::{Output, Worker};
    use bytes::Bytes;
    use offload_protocol::limits::SEGMENT_PAYLOAD_MIN;
    use offload_protocol::messages::{CAPABILITIES, SEGMENTS, SegmentUse, ToWorker, VERSION_MAJOR};
    use offload_protocol::nouns::MediaType;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::sync::mpsc::{self, Receiver, Sender};

    const LENGTH: u64 = 1 << 18;
    const LARGE: usize = SEGMENT_PAYLOAD_MIN;
    const INPUTS: u32 = 7;
    const OUTPUTS: u32 = 8;

    /// A worker with both segments, and tasks that return their input, a part of it, something else that is as long, the input
    /// after they have given it to the test, and nothing.
    struct Scene {
        supervisor: TestSupervisor,
        serving: Serving,
        inputs: File,
        outputs: File,
        kept: Receiver<Bytes>,
    }

    fn worker(keep: Sender<Bytes>) -> Worker {
        Worker::new()
            .raw("echo", |input, _| Ok(Output::bytes(input.bytes)))
            .raw("part", |input, _| Ok(Output::bytes(input.bytes.slice(1..11))))
            .raw("turn", |input, _| Ok(Output::bytes(input.bytes.iter().rev().copied().collect::<Vec<u8>>())))
            .raw("keep", move |input, _| {
                keep.send(input.bytes.clone()).unwrap();
                Ok(Output::bytes(input.bytes))
            })
            .raw("fail", |_, _| Err(crate::TaskError::new("no")))
    }

    fn memory() -> File {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, LENGTH).unwrap();
        file.into()
    }

    impl Scene {
        fn new() -> Scene {
            let (keep, kept) = mpsc::channel();
            let (mut supervisor, serving) = TestSupervisor::of(move || worker(keep));
            let welcome = ToWorker::Welcome {
                major: VERSION_MAJOR,
                minor: 0,
                capabilities: SEGMENTS,
                payload_max: LENGTH,
            };
            supervisor.add(&welcome, "").send();
            let (inputs, outputs) = (memory(), memory());
            let mut scene = Scene { supervisor, serving, inputs, outputs, kept };
            scene.give(INPUTS, SegmentUse::Inputs);
            scene.give(OUTPUTS, SegmentUse::Outputs);
            scene
        }

        fn give(&mut self, segment: u32, holds: SegmentUse) {
            let file = match holds {
                SegmentUse::Inputs => &self.inputs,
                SegmentUse::Outputs => &self.outputs,
            };
            self.supervisor
                .add(&ToWorker::Segment { segment, bytes: LENGTH, holds }, "")
                .send_with(file.as_fd());
            self.hears(&Said::SegmentReady(segment));
        }

        /// Gives a job with its input in the segment.
        fn run(&mut self, job: u64, task: &str, input: &[u8]) {
            self.inputs.write_all_at(input, 64).unwrap();
            let length = input.len() as u64;
            let input_in = ToWorker::InputIn { job, segment: INPUTS, offset: 64, length };
            self.supervisor.add(&input_in, "").add_run(job, task, "").send();
            self.hears(&Said::Started { job, attempt: 1 });
        }

        #[track_caller]
        fn hears(&mut self, expected: &Said) {
            assert_eq!(&self.supervisor.hear(), expected);
        }

        #[track_caller]
        fn hears_output_in(&mut self, job: u64, segment: u32, offset: u64) {
            self.hears(&Said::OutputIn { job, segment, offset, length: LARGE as u64 });
            self.hears_output(job, &[]);
        }

        #[track_caller]
        fn hears_output(&mut self, job: u64, output: &[u8]) {
            let media_type = MediaType::OCTET_STREAM;
            self.hears(&Said::Finished { job, attempt: 1, media_type, output: output.to_vec() });
        }
    }

    fn large() -> Vec<u8> {
        (0..LARGE).map(|index| (index % 251) as u8).collect()
    }

    #[test]
    fn a_worker_says_that_it_can_use_segments() {
        assert_eq!(crate::session::capabilities(), CAPABILITIES);
    }

    #[test]
    fn an_output_that_is_a_part_of_the_input_is_not_copied_if_it_is_large() {
        let mut scene = Scene::new();
        scene.run(1, "echo", &large());
        scene.hears_output_in(1, INPUTS, 64);
        scene.run(2, "part", &large());
        scene.hears_output(2, &large()[1..11]);
        drop(scene.supervisor);
        scene.serving.end().unwrap();
    }

    #[test]
    fn another_large_output_goes_into_the_other_segment_until_it_was_read() {
        let mut scene = Scene::new();
        let turned: Vec<u8> = large().into_iter().rev().collect();
        scene.run(1, "turn", &large());
        scene.hears_output_in(1, OUTPUTS, 64);
        let mut written = vec![0; LARGE];
        scene.outputs.read_exact_at(&mut written, 64).unwrap();
        assert!(written == turned);
        scene.run(2, "turn", &large());
        scene.hears_output(2, &turned);
        scene.supervisor.add(&ToWorker::OutputRead { segment: OUTPUTS }, "");
        scene.run(3, "turn", &large());
        scene.hears_output_in(3, OUTPUTS, 64);
        scene.run(4, "fail", &large());
        assert!(matches!(scene.supervisor.hear(), Said::Failed { job: 4, .. }));
    }

    #[test]
    fn an_input_that_somebody_still_holds_stays_as_it_is_and_its_segment_is_left() {
        let mut scene = Scene::new();
        scene.run(1, "keep", &large());
        scene.hears(&Said::SegmentLeft(INPUTS));
        scene.hears_output_in(1, OUTPUTS, 64);
        let kept = scene.kept.recv().unwrap();
        assert!(kept == large(), "it is mapped for as long as it is held");
        scene.inputs = memory();
        scene.give(INPUTS + 2, SegmentUse::Inputs);
        scene.supervisor.add_run(2, "echo", "inline").send();
        scene.hears(&Said::Started { job: 2, attempt: 1 });
        scene.hears_output(2, b"inline");
    }

    #[test]
    fn a_segment_that_is_gone_or_cannot_be_mapped_is_left_once() {
        let mut scene = Scene::new();
        scene.supervisor.add(&ToWorker::SegmentGone { segment: OUTPUTS }, "").send();
        scene.hears(&Said::SegmentLeft(OUTPUTS));
        scene.supervisor.add(&ToWorker::SegmentGone { segment: OUTPUTS }, "").send();
        scene.run(1, "turn", &large());
        assert!(matches!(scene.supervisor.hear(), Said::Finished { output, .. } if output.len() == LARGE));
        let without = ToWorker::Segment { segment: 9, bytes: LENGTH, holds: SegmentUse::Outputs };
        scene.supervisor.add(&without, "").send();
        scene.hears(&Said::SegmentLeft(9));
        let too_long = ToWorker::Segment { segment: 10, bytes: 2 * LENGTH, holds: SegmentUse::Outputs };
        scene.supervisor.add(&too_long, "").send_with(scene.outputs.as_fd());
        scene.hears(&Said::SegmentLeft(10));
    }

    #[test]
    fn an_input_outside_of_its_segment_ends_the_session() {
        for (segment, offset, length) in
            [(INPUTS, LENGTH, 1), (OUTPUTS, 64, 1), (99, 0, 1), (INPUTS, u64::MAX, 9)]
        {
            let mut scene = Scene::new();
            scene.supervisor.add(&ToWorker::InputIn { job: 1, segment, offset, length }, "").send();
            let error = scene.serving.end().unwrap_err().to_string();
            assert!(error.contains("where it cannot be"), "{error}");
        }
    }
}
