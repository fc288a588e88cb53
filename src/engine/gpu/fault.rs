//! What makes an engine fail.

use super::{channel::ChannelError, driver::DriverError};

/// Why a batch was not done on the device, or why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The driver, or what it said.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// What the process of the device says: mostly what the driver said.
    #[error("{0}")]
    Refused(String),
    /// The process of the device ended, is silent, or says what makes no sense.
    #[error(transparent)]
    Process(#[from] ChannelError),
    /// There is no such process.
    #[error("its process does not start: {0}")]
    Start(std::io::Error),
    /// It was killed and is still there.
    #[error("its last process does not end")]
    Lingers,
    /// Nobody said which program to start.
    #[error("this program has no process for a GPU")]
    NoProgram,
    /// A result that the CPU does not confirm.
    #[error("a wrong result: {0}")]
    Wrong(&'static str),
    /// The system gave no thread.
    #[error("no thread: {0}")]
    Thread(std::io::Error),
    /// It failed before, and is out of service.
    #[error("out of service")]
    OutOfService,
}
