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
    #[error("its process could not be started: {0}")]
    Start(std::io::Error),
    /// The previous process was killed but still exists.
    #[error("its previous process has not exited")]
    Lingers,
    /// No program to start was configured.
    #[error("this program cannot start a GPU process")]
    NoProgram,
    /// A result that the CPU does not confirm.
    #[error("a wrong result: {0}")]
    Wrong(&'static str),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The device failed before and is out of service.
    #[error("out of service")]
    OutOfService,
}
