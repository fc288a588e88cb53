use super::*;

#[test]
fn files_give_way_when_all_have_too_many() {
    let all = SlotMemory::new(100 * LEAF);
    let (mut a, mut b) = (SlotShare::of(&all), SlotShare::of(&all));
    assert_eq!(a.count(60), 60);
    assert_eq!(b.count(40), 40);
    assert_eq!(a.room(), 0);
    assert_eq!(b.count(41), FEW);
    assert_eq!(b.count(FEW), FEW);
    assert_eq!(all.bytes(), (60 + FEW) * LEAF);
    assert_eq!(a.count(96), 48);
    assert_eq!(b.room(), 0);
    drop(a);
    assert_eq!(b.room(), 100 - FEW);
    assert_eq!(b.count(100), 100);
    drop(b);
    assert_eq!(all.bytes(), 0);
}

#[test]
fn what_readers_load_counts_at_once_and_only_once() {
    let all = SlotMemory::new(100 * LEAF);
    let mut share = SlotShare::of(&all);
    (0..3).for_each(|_| share.add());
    assert_eq!(share.room(), 97);
    assert_eq!(share.count(3), 3);
    assert_eq!(share.room(), 97);
    share.add();
    drop(share);
    assert_eq!(all.bytes(), 0);
}

#[test]
fn a_few_are_always_kept() {
    let all = SlotMemory::new(LEAF);
    let mut shares: Vec<SlotShare> = (0..10).map(|_| SlotShare::of(&all)).collect();
    assert!(shares.iter_mut().all(|share| share.count(FEW) == FEW));
    assert_eq!(shares[0].count(FEW + 2), FEW);
}
