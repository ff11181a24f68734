//! Two pages with the same SHA-1 are two pages.
//!
//! They begin with the published collision (Stevens, Bursztein, Karpman, Albertini, Markov: The first collision for
//! full SHA-1, CRYPTO 2017): a common prefix, then two different blocks after which SHA-1 is in the same state, so that
//! any common ending leaves the digests equal.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use ckpt_store::{Digest, PAGE_BYTES, PageList, Store};

mod story;
use story::{end, start};

const PREFIX: &str = concat!(
    "255044462d312e330a25e2e3cfd30a0a0a312030206f626a0a3c3c2f57696474682032203020522f4865696768742033",
    "203020522f547970652034203020522f537562747970652035203020522f46696c7465722036203020522f436f6c6f72",
    "53706163652037203020522f4c656e6774682038203020522f42697473506572436f6d706f6e656e7420383e3e0a7374",
    "7265616d0affd8fffe00245348412d3120697320646561642121212121852fec092339759c39b1a1c63c4c97e1fffe01",
);
const FIRST_BLOCKS: &str = concat!(
    "7f46dc93a6b67e013b029aaa1db2560b45ca67d688c7f84b8c4c791fe02b3df614f86db1690901c56b45c1530afedfb7",
    "6038e972722fe7ad728f0e4904e046c230570fe9d41398abe12ef5bc942be33542a4802d98b5d70f2a332ec37fac3514",
    "e74ddc0f2cc1a874cd0c78305a21566461309789606bd0bf3f98cda8044629a1",
);
const SECOND_BLOCKS: &str = concat!(
    "7346dc9166b67e118f029ab621b2560ff9ca67cca8c7f85ba84c79030c2b3de218f86db3a90901d5df45c14f26fedfb3",
    "dc38e96ac22fe7bd728f0e45bce046d23c570feb141398bb552ef5a0a82be331fea48037b8b5d71f0e332edf93ac3500",
    "eb4ddc0decc1a864790c782c76215660dd309791d06bd0af3f98cda4bc4629b1",
);

fn page(blocks: &str) -> Vec<u8> {
    let hex = [PREFIX, blocks].concat();
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    let mut page: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    page.resize(PAGE_BYTES, 0);
    page
}

#[test]
fn two_pages_with_the_same_sha1_are_both_stored_and_read_back() {
    let (first, second) = (page(FIRST_BLOCKS), page(SECOND_BLOCKS));
    assert_ne!(first, second);
    let [one, other] = [&first, &second].map(|page| Digest::Sha1.key_of(page).to_bytes());
    assert_eq!(one[..20], other[..20]);
    assert_ne!(one[20..], other[20..]);
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create_or_open(dir.path()).unwrap();
    for (known, pages) in [(0, [&first[..], &second[..]].concat()), (2, [&second[..], &first[..]].concat())] {
        let mut attempt = store.begin(start("collide")).unwrap();
        let keys = attempt.write_pages(&pages).unwrap();
        let mut list = PageList::new();
        list.set_run(0, &keys);
        attempt.write_page_list(&list).unwrap();
        let row = attempt.seal(end(), b"").unwrap();
        assert_eq!(row.written.duplicate_bytes, known * PAGE_BYTES as u64);
        let mut read = vec![0; pages.len()];
        Store::open(dir.path()).unwrap().read_pages(&keys, &mut read).unwrap();
        assert_eq!(read, pages);
    }
}
