//! Accounts and claims that compete for an arena.

use std::sync::atomic::Ordering;

use super::{account::WAITING_MAX, *};
use crate::StopFlag;

const BYTES: u64 = 1000;

fn account(arena: &Arc<Arena>, minimum_bytes: u64) -> Arc<Account> {
    let account = Account::new(arena);
    account.admit(minimum_bytes, &StopFlag::default()).unwrap();
    Arc::new(account)
}

#[test]
fn a_query_gets_what_it_has_reserved_whatever_others_use() {
    let arena = Arc::new(Arena::new(BYTES));
    let (first, second) = (account(&arena, 250), account(&arena, 250));
    // Beyond its minimum the first may have what nobody has reserved.
    arena.take(Some(&first), 750).unwrap();
    assert_eq!(arena.take(Some(&first), 1).unwrap_err().kind, ErrorKind::OutOfMemory);
    assert!(arena.take(None, 1).is_err(), "a cache took what was reserved");
    arena.take(Some(&second), 250).unwrap();
    assert!(arena.take(Some(&second), 1).is_err());
    arena.give_back(Some(&first), 700);
    arena.take(Some(&second), 500).unwrap();
    assert_eq!((first.peak_bytes(), second.peak_bytes(), arena.peak_bytes()), (750, 750, 1000));
    arena.give_back(Some(&second), 750);
    arena.give_back(Some(&first), 50);
    drop((first, second));
    arena.take(None, BYTES).unwrap();
}

#[test]
fn claims_are_granted_their_guarantee_and_half_of_what_is_left() {
    let arena = Arc::new(Arena::new(BYTES));
    let first = account(&arena, 200);
    let mut claim = Claim::new(first.clone(), 50);
    assert!(claim.try_resize(50) && claim.try_resize(50 + 400));
    assert!(!claim.try_resize(50 + 401));
    assert_eq!(claim.bytes(), 450, "a refusal changed the claim");
    // Another query takes none of it, and gets a guarantee all the same.
    let second = account(&arena, 200);
    let mut other = Claim::new(second.clone(), 60);
    assert_eq!(other.resize_up_to(1000), 125);
    assert!(claim.try_resize(0));
    assert_eq!(other.resize_up_to(60 + 300), 360);
    drop((claim, other));
    assert_eq!(first.available_bytes(), 800);
}

#[test]
fn while_a_query_waits_no_claim_grows() {
    let arena = Arc::new(Arena::new(BYTES));
    let first = account(&arena, 600);
    let mut claim = Claim::new(first.clone(), 100);
    assert!(claim.try_resize(150));
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // The later one has room before the earlier one, but not beside it.
        for (place, minimum_bytes) in [(1, 700), (2, 400)] {
            let (arena, admitted) = (&arena, &admitted);
            scope.spawn(move || {
                let account = account(arena, minimum_bytes);
                assert_eq!(admitted.fetch_add(1, Ordering::SeqCst) + 1, place, "admitted out of turn");
                drop(account);
            });
            while arena.lock().waiting.len() < place as usize {
                std::thread::yield_now();
            }
        }
        assert!(!claim.try_resize(160));
        assert!(claim.try_resize(100));
        drop(claim);
        drop(first);
    });
    assert_eq!(admitted.into_inner(), 2);
    assert_eq!(arena.lock().reserved_bytes, 0);
}

#[test]
fn too_many_queries_that_wait_and_too_large_ones_are_refused() {
    let arena = Arc::new(Arena::new(BYTES));
    let large = Account::new(&arena).admit(BYTES + 1, &StopFlag::default()).unwrap_err();
    assert_eq!(large.kind, ErrorKind::OutOfMemory);
    let stop = StopFlag::default();
    let all = account(&arena, BYTES);
    std::thread::scope(|scope| {
        for _ in 0..WAITING_MAX {
            scope.spawn(|| {
                let error = Account::new(&arena).admit(1, &stop).unwrap_err();
                assert_eq!(error.kind, ErrorKind::Cancelled);
            });
        }
        while arena.lock().waiting.len() < WAITING_MAX {
            std::thread::yield_now();
        }
        let error = Account::new(&arena).admit(1, &stop).unwrap_err();
        assert!(error.message.contains("queries_waiting=64"), "{error}");
        stop.stop();
    });
    drop(all);
    assert_eq!(arena.lock().reserved_bytes, 0);
}

struct Cache(AtomicU64, Arc<Arena>);

impl Reclaim for Cache {
    fn reclaim(&self, bytes: u64) {
        let given = bytes.min(self.0.load(Ordering::SeqCst));
        self.0.fetch_sub(given, Ordering::SeqCst);
        self.1.give_back(None, given);
    }
}

#[test]
fn caches_give_back_what_is_missing_and_no_more() {
    let arena = Arc::new(Arena::new(BYTES));
    arena.take(None, BYTES).unwrap();
    assert_eq!(Account::new(&arena).available_bytes(), BYTES);
    let cache = Arc::new(Cache(AtomicU64::new(BYTES), arena.clone()));
    let weak: Weak<dyn Reclaim> = Arc::downgrade(&cache) as Weak<dyn Reclaim>;
    arena.add_reclaimer(weak);
    let query = account(&arena, 100);
    assert_eq!(cache.0.load(Ordering::SeqCst), 900);
    arena.take(Some(&query), 150).unwrap();
    assert_eq!(cache.0.load(Ordering::SeqCst), 850);
    let mut claim = Claim::new(query.clone(), 10);
    assert!(claim.try_resize(10 + 100));
    assert_eq!(cache.0.load(Ordering::SeqCst), 800, "what the query has reserved");
}
