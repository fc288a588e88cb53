//! Failures of a GPU engine.

use super::{channel::ChannelError, driver::DriverError};

/// Why a batch was not run on the device, or why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The driver is missing or reported an error.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// An error reported by the device's process, usually the driver's.
    #[error("{0}")]
    Refused(String),
    /// The device's process ended, does not answer, or sent a malformed message.
    #[error(transparent)]
    Process(#[from] ChannelError),
    /// The process could not be started.
    #[error("its process does not start: {0}")]
    Start(std::io::Error),
    /// The previous process was killed but still exists.
    #[error("its last process does not end")]
    Lingers,
    /// No program to start was configured.
    #[error("this program has no process for a GPU")]
    NoProgram,
    /// A result that the CPU does not confirm.
    #[error("a wrong result: {0}")]
    Wrong(&'static str),
    /// A thread could not be started.
    #[error("no thread: {0}")]
    Thread(std::io::Error),
    /// The device failed before and is out of service.
    #[error("out of service")]
    OutOfService,
}
