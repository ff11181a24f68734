//! Does this kernel allow as many threads, descriptors and mappings.
//!
//! A program that had more was captured on a host with higher limits, or never was. Either way it would be found out
//! with thousands of threads made already.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::image::ProcessImage;

/// Checks the image against the limits of this kernel.
pub fn check(image: &ProcessImage) -> Result<()> {
    check_against(image, &|name| {
        let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
        text.trim().parse().ok()
    })
}

fn check_against(image: &ProcessImage, limit: &dyn Fn(&str) -> Option<u64>) -> Result<()> {
    let highest = image.descriptors.iter().map(|descriptor| descriptor.number).max();
    let needed = [
        ("kernel/threads-max", "threads", image.threads.len() as u64),
        ("fs/nr_open", "places in its table of descriptors", highest.map_or(0, |highest| highest as u64 + 1)),
        ("vm/max_map_count", "mappings", (image.regions.len() + image.special_mappings.len()) as u64),
    ];
    for (name, what, needed) in needed {
        // A limit that cannot be read is left to the kernel.
        if let Some(limit) = limit(name).filter(|limit| needed > *limit) {
            let why = format!("the program has {needed} {what}, and this kernel allows {limit}");
            return Err(Error::environment("restart", why, format!("raise it with sysctl {}", name.replace('/', "."))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Descriptor;
    use crate::restore::host::Machine;
    use crate::restore::sample;

    #[test]
    fn more_threads_descriptors_or_mappings_than_the_kernel_allows_are_refused_with_the_limits_name() {
        let mut image = sample::process(&Machine::this().unwrap());
        check(&image).unwrap();
        image.threads = (0..5000).map(|tid| sample::thread(300_000 + tid)).collect();
        image.descriptors = vec![Descriptor { number: 2_000_000, file: 0, close_on_exec: false }];
        for name in ["kernel/threads-max", "fs/nr_open", "vm/max_map_count"] {
            let limit = |asked: &str| Some(if asked == name { 1 } else { u64::MAX });
            let message = check_against(&image, &limit).unwrap_err().to_string();
            assert!(message.contains(&name.replace('/', ".")), "{message}");
        }
        check_against(&image, &|_| None).unwrap();
    }
}
