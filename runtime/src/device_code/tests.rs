//! What nvcc makes of known sources (fixtures/build), in each form that an image can have; and what is no image.

use super::*;

/// The fixture of this name.
macro_rules! built {
    ($name:literal) => {
        include_bytes!(concat!("fixtures/built/", $name)).as_slice()
    };
}

const VARIABLES_PTX: &[u8] = built!("variables.ptx");
const CUBINS: [&[u8]; 3] =
    [built!("variables.sm_75.cubin"), built!("variables.sm_90.cubin"), built!("variables.sm_120.cubin")];
const FATBINS: [&[u8]; 6] = [
    built!("variables.none.fatbin"),
    built!("variables.speed.fatbin"),
    built!("variables.balance.fatbin"),
    built!("variables.size.fatbin"),
    built!("variables.lz4-frame.fatbin"),
    built!("variables.default.fatbin"),
];

/// PTX as a program gives it to the driver.
fn text(ptx: &[u8]) -> Vec<u8> {
    [ptx, &[0]].concat()
}

/// All fixtures that are whole images.
fn images() -> Vec<Vec<u8>> {
    let mut images: Vec<_> = CUBINS.iter().chain(&FATBINS).map(|image| image.to_vec()).collect();
    images.push(built!("linked.sm_90.cubin").to_vec());
    images.push(text(VARIABLES_PTX));
    images.push(text(built!("user.ptx")));
    images
}

/// One image in each form, and packed in each way; none has 5 KiB.
fn small_images() -> [Vec<u8>; 5] {
    let user = text(built!("user.ptx"));
    [FATBINS[1].to_vec(), FATBINS[3].to_vec(), FATBINS[4].to_vec(), built!("user.sm_90.cubin").to_vec(), user]
}

fn listed(variables: &[Variable]) -> Vec<(&str, Kind, Option<u64>)> {
    variables.iter().map(|variable| (variable.name.as_str(), variable.kind, variable.bytes)).collect()
}

/// The variables of fixtures/variables.cu.
fn expected() -> Vec<(&'static str, Kind, Option<u64>)> {
    use Kind::{Constant, Global, Managed};
    vec![
        ("_Z8per_typeIdE", Global, Some(8)),
        ("_Z8per_typeIiE", Global, Some(4)),
        (ANONYMOUS, Global, Some(2)),
        ("_ZN5outer4pairE", Global, Some(16)),
        ("_ZN5outer6spacedE", Global, Some(5)),
        ("_ZZ5touchE5calls", Global, Some(4)),
        ("constant", Constant, Some(16)),
        ("constant_initialised", Constant, Some(2)),
        ("initialised", Global, Some(12)),
        ("internal_linkage", Global, Some(4)),
        ("managed", Managed, Some(32)),
        ("managed_initialised", Managed, Some(4)),
        ("matrix", Global, Some(80)),
        ("plain", Global, Some(4)),
    ]
}

/// `outer::(anonymous namespace)::anonymous`.
const ANONYMOUS: &str = "_ZN43_INTERNAL_00000000_12_variables_cu_94629ea15outer\
                         45_GLOBAL__N__00000000_12_variables_cu_94629ea19anonymousE";

#[test]
fn ptx_has_the_variables_of_its_source() {
    assert_eq!(listed(&variables(&text(VARIABLES_PTX)).unwrap()), expected());
}

#[test]
fn cubins_of_all_architectures_have_the_variables_of_their_source() {
    for cubin in CUBINS {
        assert_eq!(listed(&variables(cubin).unwrap()), expected());
    }
}

#[test]
fn fatbins_packed_in_every_way_have_the_variables_of_their_source() {
    for fatbin in FATBINS {
        assert_eq!(listed(&variables(fatbin).unwrap()), expected());
    }
}

#[test]
fn what_is_defined_elsewhere_is_found_once_it_is_linked() {
    use Kind::{Constant, Global};
    const INTERNAL: &str = "__nv_static_23__00000000_7_user_cu_use_internal_to_user";
    let mut expected = vec![(INTERNAL, Global, Some(4)), ("defined_by_user", Global, Some(4))];
    for image in [built!("user.sm_90.cubin").to_vec(), text(built!("user.ptx"))] {
        assert_eq!(listed(&variables(&image).unwrap()), expected);
    }
    expected.extend([("constant_elsewhere", Constant, Some(4)), ("defined_elsewhere", Global, Some(12))]);
    expected.sort();
    assert_eq!(listed(&variables(built!("linked.sm_90.cubin")).unwrap()), expected);
}

#[test]
fn the_length_of_an_image_is_in_its_first_64_bytes() {
    for image in images() {
        let expected = (Form::of(&image) != Form::Ptx).then_some(image.len() as u64);
        assert_eq!(length(&image[..64]), expected);
    }
}

#[test]
fn what_lies_behind_an_image_is_not_looked_at() {
    for mut image in images() {
        let found = variables(&image).unwrap();
        image.extend_from_slice(FATBINS[0]);
        assert_eq!(variables(&image).unwrap(), found);
    }
}

#[test]
fn a_wrapper_says_where_the_image_is() {
    let mut wrapper = fatbin::WRAPPER_MAGIC.to_vec();
    wrapper.extend([1_u32.to_le_bytes(), 0x5678_u32.to_le_bytes(), 0x1234_u32.to_le_bytes(), [0; 4], [0; 4]].concat());
    assert_eq!(wrapped(&wrapper), Some(0x1234_0000_5678));
    assert_eq!(length(&wrapper), Some(wrapper.len() as u64));
    assert!(matches!(variables(&wrapper), Err(Error::Unsupported { .. })));
    assert_eq!(wrapped(&wrapper[..12]), None);
    assert_eq!(wrapped(FATBINS[0]), None);
}

#[test]
fn an_image_cut_short_anywhere_is_refused() {
    for image in images() {
        for end in 0..image.len() {
            assert!(variables(&image[..end]).is_err(), "{end} of {} bytes", image.len());
            let _ = length(&image[..end]);
        }
    }
}

#[test]
fn an_image_with_any_byte_changed_is_read_or_refused() {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for mut image in small_images() {
        for at in 0..image.len() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let change = [0xff, 1 << (random >> 61), (random >> 40) as u8][at % 3];
            image[at] ^= change;
            let _ = (variables_within(&image, 1 << 20), length(&image), wrapped(&image));
            image[at] ^= change;
        }
    }
}

#[test]
fn an_entry_that_is_not_understood_is_refused_and_named() {
    let entry = size_of_val(&fatbin::MAGIC) + 12;
    let changed = |offset: usize, bytes: &[u8]| {
        let mut image = FATBINS[1].to_vec();
        image[entry + offset..][..bytes.len()].copy_from_slice(bytes);
        variables(&image).unwrap_err().to_string()
    };
    let cases: [(usize, &[u8], &str); 7] = [
        (0, &[8], "entry 1 of a fatbin, of kind 8"),
        (4, &[63], "the header of an entry is too short"),
        (8, &[0xff; 4], "an entry is longer than the container"),
        (16, &[0xff; 4], "longer packed than stored"),
        (41, &[0x10], "packed in a way that is not known"),
        (56, &[0xff; 8], "are the most that are unpacked here"),
        (56, &[0x11], "6672 bytes unpacked instead of 6673"),
    ];
    for (offset, bytes, message) in cases {
        let told = changed(offset, bytes);
        assert!(told.contains(message), "{message}: {told}");
    }
    assert!(changed(56, &[0x11]).contains("a cubin for architecture 90 (entry 1 of a fatbin)"));
}

#[test]
fn what_is_no_device_code_is_refused() {
    let host = std::fs::read("/proc/self/exe").unwrap();
    for bytes in [b"".as_slice(), b"\0", b"BC\xC0\xDE\0", b"!<arch>\n\0", &host, &[0x7f, b'E', b'L', b'F']] {
        assert!(matches!(variables(bytes), Err(Error::DeviceCode { .. })));
    }
}

#[test]
fn packed_code_longer_than_allowed_is_refused_before_it_is_unpacked() {
    for fatbin in &FATBINS[1..] {
        assert!(variables_within(fatbin, 1000).is_err());
        variables_within(fatbin, 1 << 20).unwrap();
    }
}

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/store/fuzz/corpus/device_code");

#[test]
fn the_saved_inputs_of_the_fuzz_target_are_read_or_refused() {
    let inputs: Vec<_> = std::fs::read_dir(CORPUS).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!inputs.is_empty());
    for input in inputs {
        let _ = variables_within(&std::fs::read(input).unwrap(), 1 << 20);
    }
}

/// `cargo test -p ckpt --lib -- --ignored write_seeds_of_device_code` writes the inputs that fuzzing begins with.
#[test]
#[ignore = "writes the first inputs of the fuzz target `device_code`; to be run when the fixtures have changed"]
fn write_seeds_of_device_code() {
    std::fs::create_dir_all(CORPUS).unwrap();
    for (number, image) in small_images().iter().enumerate() {
        std::fs::write(std::path::Path::new(CORPUS).join(format!("image-{number}")), image).unwrap();
    }
}
