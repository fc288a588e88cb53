//! Directory-descriptor operations: no path is ever resolved twice, no link followed.

mod file;

pub use file::DirFile;
