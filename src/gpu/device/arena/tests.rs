//! Accounts and claims that compete for an arena.

use std::sync::atomic::Ordering;

use super::{account::WAITING_MAX, *};
use pystachio_engine::StopFlag;

const BYTES: u64 = 1000;

fn account(arena: &Arc<Arena>, minimum_bytes: u64) -> Arc<Account> {
    let account = Account::new(arena);
    account.admit(Reservation::of_minimum(minimum_bytes), &StopFlag::default()).unwrap();
    Arc::new(account)
}

#[test]
fn a_query_gets_what_it_has_reserved_whatever_others_use() {
    let arena = Arc::new(Arena::new(BYTES));
    let (first, second) = (account(&arena, 250), account(&arena, 250));
    // Beyond its minimum the first may use memory that no account has reserved.
    arena.take(Some(&first), 750).unwrap();
    assert_eq!(arena.take(Some(&first), 1).unwrap_err().kind, ErrorKind::OutOfMemory);
    arena.take(Some(&second), 250).unwrap();
    assert!(arena.take(None, 1).is_err(), "a cache took memory in use");
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
fn claims_of_a_query_share_its_pool_also_while_others_wait() {
    let arena = Arc::new(Arena::new(BYTES));
    let query = Account::new(&arena);
    let reservation = Reservation { minimum_bytes: 600, pool_bytes: 200, growth_bytes: 600 };
    query.admit(reservation, &StopFlag::default()).unwrap();
    let query = Arc::new(query);
    let (mut first, mut second) = (Claim::new(query.clone(), 50), Claim::new(query.clone(), 50));
    std::thread::scope(|scope| {
        scope.spawn(|| drop(account(&arena, 500)));
        while arena.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        assert!(first.try_resize(50 + 150));
        assert_eq!(arena.lock().reserved_bytes, 600, "the pool is reserved already");
        assert!(!second.try_resize(50 + 51), "more than is left of the pool");
        assert!(second.try_resize(50 + 50));
        assert!(first.try_resize(50));
        assert!(second.try_resize(50 + 200), "the pool is any claim's");
        drop((first, second));
        drop(query);
    });
    assert_eq!(arena.lock().reserved_bytes, 0);
}

#[test]
fn while_a_query_waits_claims_grow_into_free_memory_up_to_a_limit() {
    let arena = Arc::new(Arena::new(BYTES));
    let query = Account::new(&arena);
    let reservation = Reservation { minimum_bytes: 100, pool_bytes: 0, growth_bytes: 250 };
    query.admit(reservation, &StopFlag::default()).unwrap();
    let query = Arc::new(query);
    let mut claim = Claim::new(query.clone(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| drop(account(&arena, BYTES)));
        while arena.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        assert!(claim.try_resize(150));
        assert!(!claim.try_resize(151));
        drop(claim);
        drop(query);
    });
    assert_eq!(arena.lock().reserved_bytes, 0);
}

#[test]
fn many_queries_count_on_shares_of_what_is_free() {
    let arena = Arc::new(Arena::new(BYTES));
    let mut queries = Vec::new();
    // A minimum of its own, and all free memory, which up to four queries may each count on.
    for available in [10 + 990, 10 + 980, 10 + 970, 10 + 960, 10 + 950 / 2] {
        queries.push(account(&arena, 10));
        assert_eq!(queries.last().map(|query| query.available_bytes()), Some(available));
    }
    queries.extend((0..3).map(|_| account(&arena, 10)));
    assert_eq!(queries[0].available_bytes(), 10 + 920 / 2);
    queries.truncate(4);
    assert_eq!(queries[0].available_bytes(), 10 + 960);
}

#[test]
fn small_queries_run_beside_a_large_one_and_none_overtakes_the_next_large_one() {
    let arena = Arc::new(Arena::new(BYTES));
    let large = account(&arena, 250);
    let small: Vec<_> = (0..15).map(|_| account(&arena, 50)).collect();
    assert_eq!((arena.admitted_count(), arena.waiting_count()), (16, 0));
    let (admitted, stop) = (Mutex::new(Vec::new()), StopFlag::default());
    std::thread::scope(|scope| {
        let wait_behind = |count: usize| {
            while arena.waiting_count() < count {
                std::thread::yield_now();
            }
        };
        let wait = |name: &'static str, minimum_bytes, stop: &StopFlag| {
            let (arena, admitted, stop) = (&arena, &admitted, stop.clone());
            scope.spawn(move || {
                let query = Account::new(arena);
                let is_admitted = query.admit(Reservation::of_minimum(minimum_bytes), &stop).is_ok();
                admitted.lock().unwrap().push((name, is_admitted));
                // All of it, so that the next one is admitted after this is known.
                drop(query);
            });
        };
        wait("large", BYTES, &StopFlag::default());
        wait_behind(1);
        wait("given up", 50, &stop);
        wait_behind(2);
        wait("small", 50, &StopFlag::default());
        wait_behind(3);
        // The small ones would have room now.
        drop(small);
        stop.stop();
        while admitted.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(*admitted.lock().unwrap(), [("given up", false)]);
        assert_eq!(arena.waiting_count(), 2);
        drop(large);
    });
    assert_eq!(admitted.into_inner().unwrap()[1..], [("large", true), ("small", true)]);
    assert_eq!(arena.lock().reserved_bytes, 0);
}

#[test]
fn too_many_queries_that_wait_and_too_large_ones_are_refused() {
    let arena = Arc::new(Arena::new(BYTES));
    let large =
        Account::new(&arena).admit(Reservation::of_minimum(BYTES + 1), &StopFlag::default()).unwrap_err();
    assert_eq!(large.kind, ErrorKind::OutOfMemory);
    let stop = StopFlag::default();
    let all = account(&arena, BYTES);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let error = Account::new(&arena).admit(Reservation::of_minimum(1), &stop).unwrap_err();
                assert_eq!(error.kind, ErrorKind::Cancelled);
            });
        }
        while arena.lock().waiting.len() < 8 {
            std::thread::yield_now();
        }
        let others = (0..WAITING_MAX as u64 - 8).map(|place| (u64::MAX - place, Arc::default()));
        arena.lock().waiting.extend(others);
        let error = Account::new(&arena).admit(Reservation::of_minimum(1), &stop).unwrap_err();
        assert!(error.message.contains("queries_waiting="), "{error}");
        arena.lock().waiting.truncate(8);
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

/// A cache of an arena that records the requests for memory.
fn cache(arena: &Arc<Arena>, bytes: u64) -> Arc<Cache> {
    arena.take(None, bytes).unwrap();
    let cache = Arc::new(Cache(AtomicU64::new(bytes), arena.clone()));
    let weak: Weak<dyn Reclaim> = Arc::downgrade(&cache) as Weak<dyn Reclaim>;
    arena.add_reclaimer(weak);
    cache
}

#[test]
fn caches_give_back_what_is_missing_and_no_more() {
    let arena = Arc::new(Arena::new(BYTES));
    let cache = cache(&arena, BYTES);
    let held = || cache.0.load(Ordering::SeqCst);
    assert_eq!(Account::new(&arena).available_bytes(), BYTES);
    let query = account(&arena, 100);
    assert_eq!(held(), 950, "half of the query's reservation");
    arena.take(Some(&query), 150).unwrap();
    assert_eq!(held(), 850, "the query's use");
    let mut claim = Claim::new(query.clone(), 10);
    assert!(claim.try_resize(10 + 400));
    assert_eq!(held(), 750, "half of the claim's reservation");
    arena.take(Some(&query), 350).unwrap();
    assert_eq!(held(), 500);
}

#[test]
fn caches_keep_what_queries_have_reserved_and_do_not_use() {
    let arena = Arc::new(Arena::new(BYTES));
    let cache = cache(&arena, 400);
    let queries: Vec<_> = (0..4).map(|_| account(&arena, 250)).collect();
    assert_eq!(cache.0.load(Ordering::SeqCst), 400, "though all of the arena is reserved");
    assert!(arena.take(None, 101).is_err(), "a cache takes more than half");
    // Memory that a query has used may go to the cache, and come back.
    arena.take(Some(&queries[0]), 100).unwrap();
    assert!(arena.try_detach(&queries[0], 100));
    arena.take(Some(&queries[0]), 1).unwrap();
    assert!(!arena.try_detach(&queries[0], 1));
    arena.give_back(Some(&queries[0]), 1);
    cache.0.fetch_add(100, Ordering::SeqCst);
    queries.iter().for_each(|query| arena.take(Some(query), 250).unwrap());
    assert_eq!(cache.0.load(Ordering::SeqCst), 0, "every query has got its reservation");
    assert!(arena.take(Some(&queries[0]), 1).is_err());
}

/// A cache whose evicted chunks stay in use for a while.
struct SlowCache(Arc<Arena>);

impl Reclaim for SlowCache {
    fn reclaim(&self, bytes: u64) {
        let arena = self.0.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            arena.give_back(None, bytes);
        });
    }
}

#[test]
fn a_query_waits_for_those_who_use_what_a_cache_gave_up() {
    let arena = Arc::new(Arena::new(BYTES));
    arena.take(None, 800).unwrap();
    let slow = Arc::new(SlowCache(arena.clone()));
    let weak: Weak<dyn Reclaim> = Arc::downgrade(&slow) as Weak<dyn Reclaim>;
    arena.add_reclaimer(weak);
    let query = account(&arena, 400);
    arena.take(Some(&query), 300).unwrap();
    assert_eq!(arena.lock().used_bytes, BYTES);
}

#[test]
fn many_queries_are_admitted_in_their_order() {
    let arena = Arc::new(Arena::new(BYTES));
    let first = account(&arena, BYTES);
    let admitted = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for place in 0..100 {
            let (arena, admitted) = (&arena, &admitted);
            scope.spawn(move || {
                let query = account(arena, BYTES);
                admitted.lock().unwrap().push(place);
                drop(query);
            });
            while arena.lock().waiting.len() <= place {
                std::thread::yield_now();
            }
        }
        drop(first);
    });
    assert_eq!(admitted.into_inner().unwrap(), (0..100).collect::<Vec<_>>());
    assert_eq!(arena.lock().reserved_bytes, 0);
}

/// The requests for memory, and their number.
#[derive(Default)]
struct Asked(AtomicU64);

impl Reclaim for Asked {
    fn reclaim(&self, _bytes: u64) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_claim_that_is_dropped_asks_no_cache_for_memory() {
    let arena = Arc::new(Arena::new(BYTES));
    let asked = Arc::new(Asked::default());
    let reclaim: Arc<dyn Reclaim> = asked.clone();
    arena.add_reclaimer(Arc::downgrade(&reclaim));
    let query = account(&arena, 200);
    arena.take(None, 900).unwrap();
    let mut claim = Claim::new(query.clone(), 0);
    assert!(claim.try_resize(400));
    // The cache keeps more than it may, like one whose chunks are all in use.
    assert_eq!(asked.0.load(Ordering::SeqCst), 1);
    assert!(claim.try_resize(300));
    drop(claim);
    assert_eq!(asked.0.load(Ordering::SeqCst), 1);
}
