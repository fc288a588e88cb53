//! Random inputs against the RustCrypto implementations.

use ::kuznyechik::{
    Kuznyechik,
    cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit},
};
use ::sha3::digest::{Digest, ExtendableOutput, Update, XofReader};
use crypto::{
    cipher::{Cipher, CipherKey},
    sha3, turboshake,
};
use proptest::prelude::*;

fn message() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..1200)
}

fn xof<H: ExtendableOutput + Update + Default>(message: &[u8], len: usize) -> Vec<u8> {
    let mut hasher = H::default();
    hasher.update(message);
    let mut out = vec![0; len];
    hasher.finalize_xof().read(&mut out);
    out
}

proptest! {
    #[test]
    fn sha3_hashes(message in message(), cut in any::<prop::sample::Index>()) {
        let (head, tail) = message.split_at(cut.index(message.len() + 1));
        let parts = [head, tail];
        prop_assert_eq!(sha3::sha3_224(&parts)[..].to_vec(), ::sha3::Sha3_224::digest(&message).to_vec());
        prop_assert_eq!(sha3::sha3_256(&parts)[..].to_vec(), ::sha3::Sha3_256::digest(&message).to_vec());
        prop_assert_eq!(sha3::sha3_384(&parts)[..].to_vec(), ::sha3::Sha3_384::digest(&message).to_vec());
        prop_assert_eq!(sha3::sha3_512(&parts)[..].to_vec(), ::sha3::Sha3_512::digest(&message).to_vec());
    }

    #[test]
    fn extendable_outputs(message in message(), len in 0usize..700) {
        let mut out = vec![0; len];
        turboshake::turboshake128(&[&message], 0x1f, &mut out);
        prop_assert_eq!(&out, &xof::<::turboshake::TurboShake128>(&message, len));
        turboshake::turboshake128(&[&message], 0x4d, &mut out);
        prop_assert_eq!(&out, &xof::<::turboshake::CTurboShake128<0x4d>>(&message, len));
        turboshake::turboshake256(&[&message], 0x1f, &mut out);
        prop_assert_eq!(&out, &xof::<::turboshake::TurboShake256>(&message, len));
    }

    #[test]
    fn kuznyechik_blocks(key in any::<[u8; 32]>(), blocks in prop::collection::vec(any::<[u8; 16]>(), 0..20)) {
        let (ours, theirs) = (CipherKey::new(Cipher::Kuznyechik, &key), Kuznyechik::new(&key.into()));
        let mut data = blocks.concat();
        ours.ecb_encrypt(&mut data);
        for (block, ours) in blocks.iter().zip(data.chunks(16)) {
            let mut theirs_block = (*block).into();
            theirs.encrypt_block(&mut theirs_block);
            prop_assert_eq!(&theirs_block[..], ours);
            theirs.decrypt_block(&mut theirs_block);
            prop_assert_eq!(&theirs_block[..], block);
        }
        // And the other way: random blocks as ciphertext.
        let mut data = blocks.concat();
        ours.ecb_decrypt(&mut data);
        for (block, ours) in blocks.iter().zip(data.chunks(16)) {
            let mut theirs_block = (*block).into();
            theirs.decrypt_block(&mut theirs_block);
            prop_assert_eq!(&theirs_block[..], ours);
        }
    }
}
