//! What makes an engine fail.

use super::driver::DriverError;

/// Why a batch was not done on the device, or why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The driver, or what it said.
    #[error(transparent)]
    Driver(#[from] DriverError),
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

impl Fault {
    /// Whether the device was waited for in vain.
    pub(super) fn is_time_out(&self) -> bool {
        matches!(self, Fault::Driver(DriverError::TimedOut(_)))
    }
}
