//! Inputs that are files: the worker reads them itself, after it has said that it has started the job. So a file system that
//! does not answer holds up this worker alone, and the job's run timeout ends it.
//!
//! ```text
//!   InputFile, with a descriptor ---> Run ---> Started is sent ---> read, all of it ---> the task
//!                                                                     '--- another length, an error: the job fails
//! ```
//!
//! The offset of the descriptor is never used: the next attempt, in another process, shares it. And the file is not mapped,
//! because it may be truncated at any time.

use crate::task::Input;
use bytes::Bytes;
use offload_protocol::nouns::MediaType;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread, retry_on_intr};
use std::os::fd::OwnedFd;

/// Where the input of a job is before the job runs.
#[derive(Debug)]
pub(crate) enum Source {
    Here(Input),
    File(FileInput, MediaType),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct FileInput {
    /// None if no descriptor came: this process could not have another one.
    pub(crate) file: Option<OwnedFd>,
    /// The length that it must have.
    pub(crate) bytes: u64,
}

impl Source {
    /// How many bytes of it are in memory.
    pub(crate) fn bytes_here(&self) -> usize {
        match self {
            Source::Here(input) => input.bytes.len(),
            Source::File(..) => 0,
        }
    }

    /// The input as the task sees it. Reads a file, and closes it.
    ///
    /// # Errors
    /// In one sentence, why there is no input.
    pub(crate) fn read(self) -> Result<Input, String> {
        match self {
            Source::Here(input) => Ok(input),
            Source::File(file, media_type) => Ok(Input { bytes: file.read()?, media_type }),
        }
    }
}

impl FileInput {
    fn read(self) -> Result<Bytes, String> {
        let Some(file) = &self.file else {
            return Err("the input file did not arrive: this worker has too many files open".to_owned());
        };
        let length = rustix::fs::fstat(file).map_err(unreadable)?.st_size;
        if u64::try_from(length) != Ok(self.bytes) {
            return Err(self.of_another_length(&length.to_string()));
        }
        let length = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| format!("no memory for an input of {length} bytes"))?;
        while bytes.len() < length {
            let at = bytes.len() as u64;
            // All of it at once, but the kernel reads at most 2 GiB.
            let count = retry_on_intr(|| pread(file, spare_capacity(&mut bytes), at)).map_err(unreadable)?;
            if count == 0 {
                // It was truncated after it was looked at.
                return Err(self.of_another_length(&at.to_string()));
            }
        }
        // There may be more room than was asked for, and a file that has grown since.
        bytes.truncate(length);
        Ok(bytes.into())
    }

    fn of_another_length(&self, now: &str) -> String {
        let then = self.bytes;
        format!(
            "the input file has changed: it had {then} bytes when the job was submitted, and has {now} now"
        )
    }
}

fn unreadable(error: Errno) -> String {
    format!("the input file cannot be read: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::capabilities;
    use crate::test_supervisor::{Said, TestSupervisor};
    use crate::{Output, Worker};
    use offload_protocol::messages::{FILES, ToWorker, VERSION_MAJOR};
    use offload_protocol::nouns::FailureKind;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    /// A file without a name.
    fn file(content: &[u8]) -> File {
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(memory);
        file.write_all(content).unwrap();
        file
    }

    fn input(file: &File, bytes: u64) -> FileInput {
        FileInput { file: Some(file.try_clone().unwrap().into()), bytes }
    }

    #[test]
    fn a_file_is_read_from_its_start_and_its_offset_stays() {
        let mut file = file(b"0123456789");
        for _ in 0..2 {
            assert_eq!(input(&file, 10).read().unwrap(), "0123456789");
        }
        assert_eq!(file.read(&mut [0; 10]).unwrap(), 0, "the offset is where writing has left it");
    }

    #[test]
    fn a_file_of_another_length_and_one_that_cannot_be_read_are_errors_that_say_so() {
        let file = file(b"0123456789");
        let error = |input: FileInput| input.read().unwrap_err();
        let changed = "the input file has changed: it had 9 bytes when the job was submitted, and has 10 now";
        assert_eq!(error(input(&file, 9)), changed);
        assert!(error(input(&file, u64::MAX)).starts_with("the input file has changed"));
        let folder = File::open("/").unwrap();
        let length = rustix::fs::fstat(&folder).unwrap().st_size.cast_unsigned();
        assert_eq!(
            error(input(&folder, length)),
            "the input file cannot be read: Is a directory (os error 21)"
        );
        assert!(error(FileInput { file: None, bytes: 1 }).contains("did not arrive"));
    }

    #[test]
    fn a_job_whose_input_is_a_file_is_started_before_it_is_read() {
        let (mut supervisor, serving) =
            TestSupervisor::of(|| Worker::new().raw("echo", |input, _| Ok(Output::bytes(input.bytes))));
        let welcome = ToWorker::Welcome {
            major: VERSION_MAJOR,
            minor: 0,
            capabilities: capabilities() & FILES,
            payload_max: 100,
        };
        supervisor.add(&welcome, "").send();
        let file = file(b"content");
        for (job, bytes) in [(1, 7), (2, 8), (3, 7)] {
            supervisor.add(&ToWorker::InputFile { job, bytes }, "").send_with(file.as_fd());
            supervisor.add_run(job, "echo", "").send();
            assert_eq!(supervisor.hear(), Said::Started { job, attempt: 1 });
            match supervisor.hear() {
                Said::Finished { output, .. } => assert_eq!((output.as_slice(), bytes), (&b"content"[..], 7)),
                Said::Failed { kind: FailureKind::AppError, message, .. } => {
                    assert!(job == 2 && message.contains("it had 8 bytes"), "{message}");
                }
                other => panic!("{other:?}"),
            }
        }
        supervisor.add_run(4, "echo", "inline").send();
        assert_eq!(supervisor.hear(), Said::Started { job: 4, attempt: 1 });
        assert!(matches!(supervisor.hear(), Said::Finished { output, .. } if output == b"inline"));
        drop(supervisor);
        serving.end().unwrap();
    }
}
