//! `keccak.cl` compared with the portable implementation: compiled as C++ for the CPU everywhere, and by
//! an OpenCL compiler if there is a device (`REQUIRE_OPENCL=1` requires one).

use super::{
    experiments::PUBLISHED_LANES,
    layout::noise,
    opencl_device::{Device, KERNELS, Kernel, OpenClError},
    runner,
    runner::{Argument, Geometry},
};
use crypto::keccak::{self, KeccakState, Rounds};

/// Numbers of states around the boundaries of groups and of warps.
const COUNTS: [usize; 11] = [1, 2, 31, 32, 33, 63, 65, 127, 128, 129, 1000];

/// Permutes the given number of states with a kernel.
type Permute<'a> = dyn FnMut(&Kernel, usize, Vec<u8>) -> Vec<u8> + 'a;

fn check(permute: &mut Permute) {
    for kernel in &KERNELS {
        for count in COUNTS {
            // One extra state, which must stay unchanged.
            let states = noise(count as u64, 200 * (count + 1));
            let mut expected = states.clone();
            expected[..200 * count].as_chunks_mut::<200>().0.iter_mut().for_each(permuted);
            assert!(permute(kernel, count, states) == expected, "{}, {count} states", kernel.entry);
        }
        let mut state = vec![0; 200];
        for lane in PUBLISHED_LANES {
            state = permute(kernel, 1, state);
            assert_eq!(state[..8], lane.to_le_bytes(), "{}", kernel.entry);
        }
    }
}

fn permuted(bytes: &mut [u8; 200]) {
    let lanes = bytes.as_chunks_mut::<8>().0;
    let mut state: KeccakState = std::array::from_fn(|i| u64::from_le_bytes(lanes[i]));
    keccak::permute_portable(&mut state, Rounds::TwentyFour);
    lanes.iter_mut().zip(state).for_each(|(bytes, lane)| *bytes = lane.to_le_bytes());
}

#[test]
fn keccak_in_opencl_permutes_as_c_plus_plus() {
    let Some(mut runner) = super::runner() else { return };
    check(&mut |kernel, count, states| {
        let (blocks, threads) = (kernel.groups(count) as u32, kernel.group.iter().product::<usize>() as u32);
        let arguments = vec![Argument::Buffer(states), Argument::Number(count as u64)];
        let name = format!("opencl::{}", kernel.entry);
        runner.run(&name, Geometry { blocks, threads, shared: 0 }, arguments).remove(0)
    });
}

#[test]
fn keccak_in_opencl_permutes_on_a_device() {
    let device = match Device::open() {
        Ok(device) => device,
        Err(OpenClError::Build(log)) => panic!("{log}"),
        Err(why) => return runner::skip("REQUIRE_OPENCL", &format!("no device runs keccak.cl: {why}")),
    };
    check(&mut |kernel, count, mut states| {
        let mut memory = device.states(states.len() / 200).expect("memory");
        device.upload(&states, &mut memory).expect("uploaded");
        device.permute(kernel, &memory, count, 1).expect("permuted");
        device.download(&memory, &mut states).expect("downloaded");
        states
    });
}
