//! A device whose memory is full, which is the only thing that this process does: the driver for the CPU has one memory.
#![allow(unsafe_code, reason = "the driver's own entry point is called")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod driver;

use ckpt_kernels::{
    device::{Buffer, Context, Engine, Error, Region, SLOT_BYTES_MIN, Stream},
    merkle::{Difference, Lineage, Method},
    murmur3::murmur3,
};

const CHUNKS: u32 = 4_000;

#[test]
fn when_the_device_is_full_simpler_methods_are_used_and_every_checkpoint_is_restored() {
    if std::env::var_os("CKPT_TEST_DRIVER").is_some() {
        println!("skipped: the memory of a driver that is given cannot be bounded");
        return;
    }
    // SAFETY: it is the driver that was compiled for this; the function has this type there.
    let set_memory = unsafe { libloading::Library::new(driver::path()) }.unwrap();
    let set_memory = |bytes| {
        // SAFETY: as above.
        let function = unsafe { set_memory.get::<unsafe extern "C" fn(usize)>("on_cpu_set_memory") }.unwrap();
        // SAFETY: as above.
        unsafe { function(bytes) };
    };
    let context = Context::new(driver::path(), None).unwrap();
    let entered = context.enter().unwrap();
    let (stream, memory) = (Stream::new(&context).unwrap(), Buffer::new(&context, u64::from(CHUNKS) * 32).unwrap());
    let region = Region { id: 7, address: memory.address(), bytes: memory.bytes() };
    let mut used = Vec::new();
    for limit in (0..40).map(|step| 250_000 + step * 25_000) {
        set_memory(limit);
        let Ok(mut engine) = Engine::new(&context, 32, SLOT_BYTES_MIN) else { continue };
        let mut lineage = Lineage::default();
        for number in 0..6 {
            let numbers = (0..CHUNKS).map(|chunk| if chunk % 7 == 0 { chunk + number * CHUNKS } else { chunk });
            let bytes: Vec<u8> = numbers.flat_map(|number| murmur3(&number.to_le_bytes(), 1).repeat(2)).collect();
            stream.write(&memory, &bytes).unwrap();
            let mut found = Difference::default();
            // SAFETY: the region is in device memory that nobody else uses.
            let taken = unsafe { engine.difference(number, Method::Tree, &[region], &mut found) }.unwrap();
            assert_eq!(taken.shortage.is_none(), taken.method == Method::Tree, "{taken:?}");
            used.push(taken.method);
            lineage.add(found).unwrap();
            assert!(lineage.restore(number).unwrap() == [(7, bytes)]);
        }
    }
    for method in Method::EVERY {
        assert!(used.contains(&method), "{method:?} was never used");
    }
    set_memory(0);
    let error = Buffer::new(&context, 1 << 20).err().unwrap();
    assert!(matches!(error, Error::Memory { bytes: 1_048_576 }), "{error}");
    drop(entered);
}
