//! FIPS 202, SP 800-185 and RFC 9861.

use super::{counting, hex};
use crypto::{
    mac::{Mac, MacKey},
    sha3, sp800_185, turboshake,
};

/// NIST's example values for the empty message and for 1600 bits of 0xa3.
#[test]
fn sha3_examples_of_nist() {
    let long = [0xa3; 200];
    for (message, short_hash, hash, longer_hash, longest_hash) in [
        (
            &[][..],
            "6b4e03423667dbb73b6e15454f0eb1abd4597f9a1b078e3f5b5a6bc7",
            "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a",
            "0c63a75b845e4f7d01107d852e4c2485c51a50aaaa94fc61995e71bbee983a2ac3713831264adb47fb6bd1e058d5f004",
            "a69f73cca23a9ac5c8b567dc185a756e97c982164fe25859e0d1dcc1475c80a615b2123af1f5f94c11e3e9402c3ac558
             f500199d95b6d3e301758586281dcd26",
        ),
        (
            &long,
            "9376816aba503f72f96ce7eb65ac095deee3be4bf9bbc2a1cb7e11e0",
            "79f38adec5c20307a98ef76e8324afbfd46cfd81b22e3973c65fa1bd9de31787",
            "1881de2ca7e41ef95dc4732b8f5f002b189cc1e42b74168ed1732649ce1dbcdd76197a31fd55ee989f2d7050dd473e8f",
            "e76dfad22084a8b1467fcf2ffa58361bec7628edf5f3fdc0e4805dc48caeeca81b7c13c30adf52a3659584739a2df46b
             e589c51ca1a4a8416df6545a1ce8ba00",
        ),
    ] {
        assert_eq!(sha3::sha3_224(&[message])[..], hex(short_hash));
        assert_eq!(sha3::sha3_256(&[message])[..], hex(hash));
        assert_eq!(sha3::sha3_384(&[message])[..], hex(longer_hash));
        assert_eq!(sha3::sha3_512(&[message])[..], hex(longest_hash));
    }
}

#[test]
fn shake_examples_of_nist() {
    let mut out = [0; 32];
    sha3::shake128(&[], &mut out);
    assert_eq!(out[..], hex("7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26"));
    sha3::shake256(&[], &mut out);
    assert_eq!(out[..], hex("46b9dd2b0ba88d13233b3feb743eeb243fcd52ea62b81b82b50c27646ed5762f"));
}

/// NIST's cSHAKE samples 1 to 4.
#[test]
fn cshake_samples_of_nist() {
    let custom = b"Email Signature";
    for (message, half, whole) in [
        (
            counting(4),
            "c1c36925b6409a04f1b504fcbca9d82b4017277cb5ed2b2065fc1d3814d5aaf5",
            "d008828e2b80ac9d2218ffee1d070c48b8e4c87bff32c9699d5b6896eee0edd1
             64020e2be0560858d9c00c037e34a96937c561a74c412bb4c746469527281c8c",
        ),
        (
            counting(200),
            "c5221d50e4f822d96a2e8881a961420f294b7b24fe3d2094baed2c6524cc166b",
            "07dc27b11e51fbac75bc7b3c1d983e8b4b85fb1defaf218912ac864302730917
             27f42b17ed1df63e8ec118f04b23633c1dfb1574c8fb55cb45da8e25afb092bb",
        ),
    ] {
        let mut out = [0; 64];
        sp800_185::cshake128(&[&message], b"", custom, &mut out[..32]);
        assert_eq!(out[..32], hex(half));
        sp800_185::cshake256(&[&message], b"", custom, &mut out);
        assert_eq!(out[..], hex(whole));
    }
}

/// NIST's KMAC samples 1 to 6.
#[test]
fn kmac_samples_of_nist() {
    let key: Vec<u8> = (0x40..0x60).collect();
    let tagged = &b"My Tagged Application"[..];
    for (integrity, message, custom, mac) in [
        (
            Mac::Kmac128,
            counting(4),
            &b""[..],
            "e5780b0d3ea6f7d3a429c5706aa43a00fadbd7d49628839e3187243f456ee14e",
        ),
        (
            Mac::Kmac128,
            counting(4),
            tagged,
            "3b1fba963cd8b0b59e8c1a6d71888b7143651af8ba0a7070c0979e2811324aa5",
        ),
        (
            Mac::Kmac128,
            counting(200),
            tagged,
            "1f5b4e6cca02209e0dcb5ca635b89a15e271ecc760071dfd805faa38f9729230",
        ),
        (
            Mac::Kmac256,
            counting(4),
            tagged,
            "20c570c31346f703c9ac36c61c03cb64c3970d0cfc787e9b79599d273a68d2f7
             f69d4cc3de9d104a351689f27cf6f5951f0103f33f4f24871024d9c27773a8dd",
        ),
        (
            Mac::Kmac256,
            counting(200),
            b"",
            "75358cf39e41494e949707927cee0af20a3ff553904c86b08f21cc414bcfd691
             589d27cf5e15369cbbff8b9a4c2eb17800855d0235ff635da82533ec6b759b69",
        ),
        (
            Mac::Kmac256,
            counting(200),
            tagged,
            "b58618f71f92e1d56c1b8c55ddd7cd188b97b4ca4d99831eb2699a837da2e4d9
             70fbacfde50033aea585f1a2708510c32d07880801bd182898fe476876fc8965",
        ),
    ] {
        let mut out = vec![0; hex(mac).len()];
        MacKey::new(integrity, &key, custom).mac(&[&message], &mut out);
        assert_eq!(out, hex(mac), "{integrity:?}");
    }
}

/// The repeating 0x00 .. 0xfa of RFC 9861, section 5.
fn ptn(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

type Turboshake = fn(&[&[u8]], u8, &mut [u8]);

fn last_32(function: Turboshake, message: &[u8], domain: u8, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    function(&[message], domain, &mut out);
    out.split_off(len - 32)
}

#[test]
fn turboshake128_examples_of_rfc_9861() {
    let t: Turboshake = turboshake::turboshake128;
    for (message, domain, len, answer) in [
        (ptn(0), 0x1f, 32, "1e415f1c5983aff2169217277d17bb538cd945a397ddec541f1ce41af2c1b74c"),
        (ptn(0), 0x1f, 10032, "a3b9b0385900ce761f22aed548e754da10a5242d62e8c658e3f3a923a7555607"),
        (ptn(1), 0x1f, 32, "55cedd6f60af7bb29a4042ae832ef3f58db7299f893ebb9247247d856958daa9"),
        (ptn(17), 0x1f, 32, "9c97d036a3bac819db70ede0ca554ec6e4c2a1a4ffbfd9ec269ca6a111161233"),
        (ptn(289), 0x1f, 32, "96c77c279e0126f7fc07c9b07f5cdae1e0be60bdbe10620040e75d7223a624d2"),
        (ptn(4913), 0x1f, 32, "d4976eb56bcf118520582b709f73e1d6853e001fdaf80e1b13e0d0599d5fb372"),
        (vec![0xff; 3], 0x01, 32, "bf323f940494e88ee1c540fe660be8a0c93f43d15ec006998462fa994eed5dab"),
        (vec![0xff; 1], 0x06, 32, "8ec9c66465ed0d4a6c35d13506718d687a25cb05c74cca1e42501abd83874a67"),
        (vec![0xff; 3], 0x07, 32, "b658576001cad9b1e5f399a9f77723bba05458042d68206f7252682dba3663ed"),
        (vec![0xff; 7], 0x0b, 32, "8deeaa1aec47ccee569f659c21dfa8e112db3cee37b18178b2acd805b799cc37"),
        (vec![0xff; 1], 0x30, 32, "553122e2135e363c3292bed2c6421fa232bab03daa07c7d6636603286506325b"),
        (vec![0xff; 3], 0x7f, 32, "16274cc656d44cefd422395d0f9053bda6d28e122aba15c765e5ad0e6eaf26f9"),
    ] {
        assert_eq!(last_32(t, &message, domain, len), hex(answer), "{} bytes", message.len());
    }
}

#[test]
fn turboshake256_examples_of_rfc_9861() {
    let t: Turboshake = turboshake::turboshake256;
    for (message, domain, len, answer) in [
        (ptn(0), 0x1f, 32, "367a329dafea871c7802ec67f905ae13c57695dc2c6663c61035f59a18f8e7db"),
        (ptn(0), 0x1f, 10032, "abefa11630c661269249742685ec082f207265dccf2f43534e9c61ba0c9d1d75"),
        (vec![0xff; 3], 0x01, 32, "d21c6fbbf587fa2282f29aea620175fb0257413af78a0b1b2a87419ce031d933"),
    ] {
        assert_eq!(last_32(t, &message, domain, len), hex(answer), "{} bytes", message.len());
    }
}
