//! The paper's kernels in the paper's language, OpenCL, on any kind of device.

mod device;

pub(super) use device::{KERNELS, OpenClError};

use super::{STATE, permute};
use crate::{
    experiment::{Bench, compare, noise},
    report::Spread,
};
use device::{Device, Kernel, States};
use warpcrypt::cli::lab::{Code, Failure, Outcome};

/// Maximum number of states on a device that is not a GPU: the paper's first kernel takes seconds for them.
const MOST_WITHOUT_GPU: usize = 200_000;

/// A device with states in its memory.
pub(super) struct OpenCl {
    device: Device,
    states: States,
    most: usize,
    /// Name and version of the device.
    pub(super) description: String,
}

impl OpenCl {
    /// Opens a device for `most` states, or fewer if its memory or speed requires that.
    ///
    /// # Errors
    /// Why there is none, or the library's error.
    pub(super) fn open(most: usize) -> Result<Self, OpenClError> {
        let device = Device::open()?;
        let bound = if device.is_gpu()? { most } else { MOST_WITHOUT_GPU };
        let most = most.min(bound).min(device.most_states()?);
        let (states, description) = (device.states(most)?, device.description()?);
        Ok(OpenCl { device, states, most, description })
    }

    /// Millions of states per second, after comparing the output with the CPU's. `None` if there are too
    /// many states.
    pub(super) fn rate(&mut self, bench: &Bench, kernel: &Kernel, count: usize) -> Outcome<Option<Spread>> {
        bench.next(&format!("{}, {count} states", kernel.name))?;
        if count > self.most {
            return Ok(None);
        }
        let mut expected = noise(count.min(1000) * STATE);
        let mut found = expected.clone();
        self.permute(kernel, count, &mut found).map_err(failed)?;
        expected.as_chunks_mut().0.iter_mut().for_each(permute);
        compare(kernel.name, &found, &expected)?;
        let seconds = |times| self.device.permute(kernel, &self.states, count, times).map_err(failed);
        bench.timed(count as f64 / 1e6, seconds)
    }

    /// Permutes `count` states. `first` is copied to the first ones, and then receives their results.
    fn permute(&mut self, kernel: &Kernel, count: usize, first: &mut [u8]) -> Result<(), OpenClError> {
        self.device.upload(first, &mut self.states)?;
        self.device.permute(kernel, &self.states, count, 1)?;
        self.device.download(&self.states, first)
    }
}

fn failed(error: OpenClError) -> Failure {
    Failure::plain(Code::Failed, error)
}
