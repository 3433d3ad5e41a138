/*
 * The relay's protocol as a model: leases on a lane, publishing in order, confirming, settling, parking; and everything
 * that can happen in between. Spin walks through every interleaving of it, within small bounds.
 *
 * One lane with two keys: the last row is of one, all others are of the other. Rows of a key commit in order. Two relays lease
 * the lane, read what may go out in one snapshot, publish it row by row, and write what became of it. A lease may end while its holder
 * is at work; a relay may die between any two steps; a publish may be refused, may fail though it arrived, or may arrive
 * later. An operator redrives, skips or drops what is parked. How much of it happens is bounded below.
 *
 * Checked: the first occurrence of each row is in order (land); no relay writes into a lane that is not its own (fenced);
 * and when nothing more can happen, every row has been published and nothing is left behind (the monitor).
 *
 * Each `#ifdef` breaks one rule; relay-model.spin.test.ts shows that every one of them is found, and that without any of
 * them nothing is.
 */

#ifdef LARGE
#define N 4
#else
#define N 3
#endif
#define LAST (N - 1)
#define SAME(i, j) (((i) == LAST) == ((j) == LAST))
#define KEY(i) ((i) == LAST)

#define ABSENT 0
#define DUE 1
#define RETRY 2
#define HELD 3
#define PARKED 4
#define GONE 5
#define DROPPED 6

#define NONE 0
#define CONFIRMED 1
#define REJECTED 2
#define UNKNOWN 3

byte state[N]
bit marker[N]      /* an empty marker goes out in its place, which nobody refuses */
bit first[N]       /* has reached the broker */
bit late[N]        /* a request that will land */
byte attempts[N]   /* relays that have it in hand */

byte owner         /* whose lane it is; 0 is nobody's */
bit expired        /* the lease has run out */
bit orphaned       /* its holder has died */

/* How much goes wrong in all: refusals, lost answers, late landings, deaths, leases that end. */
#ifndef TROUBLE
#define TROUBLE 2
#endif
byte trouble = TROUBLE

inline land(row) {
  d_step {
    if
    :: !first[row] ->
      for (l : 0 .. N - 1) {
        if
        :: l > row && SAME(l, row) -> assert(!first[l])                             /* nothing later came before it */
        :: l < row && SAME(l, row) -> assert(first[l] || state[l] == DROPPED)       /* nothing earlier is missing */
        :: else
        fi
      };
      first[row] = 1
    :: else
    fi;
    l = 0
  }
}

/* Whether a head stands before the row. */
inline look(row, answer) {
  answer = 0;
  for (b : 0 .. N - 1) {
    if
#ifdef PARKED_DOES_NOT_BLOCK
    :: b < row && SAME(b, row) && state[b] == RETRY -> answer = 1
#else
    :: b < row && SAME(b, row) && (state[b] == RETRY || state[b] == PARKED) -> answer = 1
#endif
    :: else
    fi
  };
  b = 0
}

/* The key of a row lost its head: its lowest held row becomes the next. */
inline promote(row) {
#ifndef NO_PROMOTION
  found = 0;
  for (p : 0 .. N - 1) {
    if
    :: SAME(p, row) && (state[p] == RETRY || state[p] == PARKED) -> found = 1
    :: else
    fi
  };
  for (p : 0 .. N - 1) {
    if
    :: SAME(p, row) && state[p] == HELD && !found -> state[p] = RETRY; found = 1
    :: else
    fi
  };
  p = 0; found = 0
#else
  skip
#endif
}

#define SOMETHING(i) (state[i] == RETRY || state[i] == DUE)
#define HAS_WORK (SOMETHING(0) || SOMETHING(1) || SOMETHING(N - 2) || SOMETHING(LAST))
#define IS_LEFT(i) (state[i] != ABSENT && state[i] != GONE && state[i] != DROPPED)
#define HAS_ROWS (IS_LEFT(0) || IS_LEFT(1) || IS_LEFT(N - 2) || IS_LEFT(LAST))

/* Only the lane's owner may write, whatever a relay believes. */
#ifdef UNFENCED
#define FENCE 1
#else
#define FENCE (owner == self)
#endif

inline fenced() { assert(owner == self) }

proctype Relay(byte self) {
  bit plan[N]
  bit clean[2]        /* keys whose rows were all due and all confirmed */
  bit stopped[2]
  bit hold[N]
#ifdef TWO_SNAPSHOTS
  bit early[N]
#endif
  byte outcome[N]
  bit freed[2]        /* keys that lost their head */
  bit answer, found, moved, outage, inHand, chained
  byte i, j, l, b, p

start:
  do
  /* Takes a lane that is free or whose lease has ended. The first to take it may as well be the first relay. */
  :: d_step { HAS_ROWS && ((owner == 0 && self == 1) || expired) -> owner = self; expired = 0; orphaned = 0 }

  /* Reads, in one statement: due rows that no head blocks, heads, and what is held behind them. */
#ifdef TWO_SNAPSHOTS
  :: d_step { owner == self && !orphaned && HAS_WORK -> for (i : 0 .. N - 1) { look(i, answer); early[i] = answer }; i = 0; answer = 0 };
    atomic {
#else
  :: atomic { owner == self && !orphaned && HAS_WORK ->
#endif
    /* While a broker is probed, what is behind heads is left for later. */
    if
    :: chained = 1
    :: chained = 0
    fi;
    d_step {
      clean[0] = 1; clean[1] = 1; stopped[0] = 0; stopped[1] = 0;
      for (i : 0 .. N - 1) {
        plan[i] = 0; outcome[i] = NONE; hold[i] = 0;
        look(i, answer);
#ifdef BLOCKED_AT_SETTLE_ONLY
        answer = 0;
#endif
#ifdef TWO_SNAPSHOTS
        answer = early[i];
#endif
        if
        :: state[i] == DUE && !answer -> plan[i] = 1
        :: state[i] == DUE && answer -> hold[i] = 1; clean[KEY(i)] = 0
        :: state[i] == RETRY -> plan[i] = 1; clean[KEY(i)] = 0
        :: state[i] == HELD ->
          /* The chain behind a head. */
          for (j : 0 .. N - 1) {
            if
            :: j < i && SAME(i, j) && state[j] == RETRY && chained -> plan[i] = 1; clean[KEY(i)] = 0
            :: else
            fi
          }
        :: else
        fi;
        if
        :: plan[i] -> attempts[i]++
        :: else
        fi
      };
      i = 0; j = 0; answer = 0; chained = 0; inHand = 1 } };

    /* Publishes row by row; a key stops at its first failure. */
    do
    :: d_step { i < N && (!plan[i] || stopped[KEY(i)]) ->
        if
        :: plan[i] -> attempts[i]--; clean[KEY(i)] = 0
        :: else
        fi;
        i++ }
    :: i < N && plan[i] && !stopped[KEY(i)] ->
      if
      :: atomic { land(i); outcome[i] = CONFIRMED }
      :: d_step { trouble > 0 && !marker[i] -> trouble--; outcome[i] = REJECTED }
      :: atomic { trouble > 0 -> trouble--; land(i); outcome[i] = UNKNOWN }
      :: d_step { trouble > 0 -> trouble--; outcome[i] = UNKNOWN }
      :: d_step { trouble > 0 && !late[i] -> trouble--; outcome[i] = UNKNOWN; late[i] = 1 }
      :: d_step { trouble > 0 -> trouble-- } -> goto dead
      fi;
      d_step {
#ifdef UNKNOWN_IS_CONFIRMED
        if
        :: outcome[i] == UNKNOWN -> outcome[i] = CONFIRMED
        :: else
        fi;
#endif
        if
        :: outcome[i] != CONFIRMED -> clean[KEY(i)] = 0;
#ifndef CONTINUE_AFTER_FAILURE
          stopped[KEY(i)] = 1
#endif
        :: else
        fi;
        attempts[i]--;
        i++ }
    :: d_step { i == N -> i = 0; inHand = 0 } -> break
    od;

    /* Clean runs are removed by one fenced statement, and only what is still due. */
    do
    :: d_step { trouble > 0 -> trouble-- } -> goto dead
    :: d_step {
        if
        :: FENCE ->
          for (i : 0 .. N - 1) {
            if
#ifdef FAST_DELETE_OF_ANY_STATE
            :: plan[i] && outcome[i] == CONFIRMED && state[i] != GONE && state[i] != DROPPED -> fenced(); state[i] = GONE
#else
            :: plan[i] && clean[KEY(i)] && state[i] == DUE -> fenced(); state[i] = GONE
#endif
            :: else
            fi
          };
#ifdef RANGE_DELETE
          /* Everything up to the last row that was confirmed. */
          for (i : 0 .. N - 1) {
            for (j : i .. N - 1) {
              if
              :: state[i] == DUE && plan[j] && clean[KEY(j)] -> state[i] = GONE
              :: else
              fi
            }
          };
          j = 0;
#endif
        :: else
        fi;
        i = 0 } -> break
    od;

#ifdef LOCK_AND_LOOK_AT_ONCE
    skip;
    /* Which rows stand behind a head, looked at before the lane is locked: too early. */
    d_step {
      for (i : 0 .. N - 1) {
        look(i, answer);
        hold[i] = (state[i] == DUE && answer)
      };
      i = 0; answer = 0 };
#endif

    /* The rest is settled by one function that locks the lane and looks after that. */
    do
    :: d_step { trouble > 0 -> trouble-- } -> goto dead
    :: d_step {
        moved = 0; outage = 1;
        for (i : 0 .. N - 1) {
          if
          :: outcome[i] == CONFIRMED || outcome[i] == REJECTED -> outage = 0
          :: else
          fi;
          if
          :: hold[i] -> moved = 1
          :: else
          fi
        };
        moved = moved || !outage;
        if
        :: FENCE && moved ->
          for (i : 0 .. N - 1) {
            if
            :: plan[i] && outcome[i] == CONFIRMED && !clean[KEY(i)] && state[i] != GONE && state[i] != DROPPED ->
              fenced();
              if
              :: state[i] == DUE -> state[i] = GONE
              :: else -> state[i] = GONE; freed[KEY(i)] = 1
              fi
            :: else
            fi
          };
          /* The row that failed becomes the head of its key, unless one stands before it; a head behind it is none any more. */
          for (i : 0 .. N - 1) {
            if
            :: plan[i] && (outcome[i] == REJECTED || (outcome[i] == UNKNOWN && !outage)) && (state[i] == DUE || state[i] == RETRY || state[i] == HELD) ->
              fenced();
              for (j : 0 .. N - 1) {
                if
                :: j > i && SAME(i, j) && (state[j] == RETRY || state[j] == PARKED) -> state[j] = HELD
                :: else
                fi
              };
              look(i, answer);
              if
              :: !answer && outcome[i] == REJECTED -> state[i] = PARKED
              :: !answer && outcome[i] == UNKNOWN -> state[i] = RETRY
              :: else
              fi
            :: else
            fi
          };
          if
          :: freed[0] -> promote(0)
          :: else
          fi;
          if
          :: freed[1] -> promote(LAST)
          :: else
          fi;
          /* Rows behind a head leave the due range. */
          for (i : 0 .. N - 1) {
            look(i, answer);
            if
#ifdef LOCK_AND_LOOK_AT_ONCE
            :: state[i] == DUE && hold[i] -> fenced(); state[i] = HELD
#else
            :: state[i] == DUE && answer -> fenced(); state[i] = HELD
#endif
            :: else
            fi
          }
        :: else
        fi;
        for (i : 0 .. N - 1) { plan[i] = 0; outcome[i] = NONE; hold[i] = 0 };
        clean[0] = 0; clean[1] = 0; stopped[0] = 0; stopped[1] = 0;
        freed[0] = 0; freed[1] = 0;
        i = 0; j = 0; answer = 0; moved = 0; outage = 0 } -> break
    od
  od;

dead:
  skip;
  /* Whoever comes in its place knows nothing; its lease ends by itself. */
  d_step {
    for (j : 0 .. N - 1) {
      if
      :: j >= i && plan[j] && inHand -> attempts[j]--
      :: else
      fi;
      plan[j] = 0; outcome[j] = NONE; hold[j] = 0
    };
    inHand = 0;
    clean[0] = 0; clean[1] = 0; stopped[0] = 0; stopped[1] = 0; freed[0] = 0; freed[1] = 0;
    i = 0; j = 0; l = 0; b = 0; p = 0; answer = 0; found = 0; moved = 0; outage = 0;
    if
    :: owner == self -> orphaned = 1
    :: else
    fi
  };
  goto start
}

/* Rows of one key commit in the order of their versions. */
proctype Writer(byte from; byte to) {
  byte next = from
  do
  :: d_step { next <= to -> state[next] = DUE; next++ }
  :: next > to -> break
  od
}

proctype World() {
  byte l
  do
  :: d_step { owner != 0 && !expired && trouble > 0 -> trouble--; expired = 1 }
  :: d_step { orphaned && !expired -> expired = 1 }
  :: atomic { late[0] -> land(0); late[0] = 0 }
  :: atomic { late[1] -> land(1); late[1] = 0 }
  :: atomic { late[2] -> land(2); late[2] = 0 }
#ifdef LARGE
  :: atomic { late[3] -> land(3); late[3] = 0 }
#endif
  od
}

/* What an operator does with a parked head, serialised by the lane's row: redrive, skip, or drop. */
#ifdef DROP_EARLY
#define QUIET(i) 1
#else
#define QUIET(i) (attempts[i] == 0 && !late[i])   /* no attempt can be under way any more */
#endif
#define OPERATE(i) \
  :: d_step { state[i] == PARKED -> state[i] = RETRY } \
  :: d_step { state[i] == PARKED -> state[i] = RETRY; marker[i] = 1 } \
  :: d_step { state[i] == PARKED && QUIET(i) -> state[i] = DROPPED; promote(i) }

proctype Operator() {
  bit found
  byte p
  do
  OPERATE(0)
  OPERATE(1)
  OPERATE(2)
#ifdef LARGE
  OPERATE(3)
#endif
  od
}

#define IS_DONE(i) (state[i] == DROPPED || (state[i] == GONE && first[i]))

/* When nothing more can happen, nothing may be left. */
proctype Monitor() {
end:
  timeout;
  assert(IS_DONE(0) && IS_DONE(1) && IS_DONE(N - 2) && IS_DONE(LAST))
}

init {
  atomic {
    run Relay(1);
    run Relay(2);
    run Writer(0, N - 2);
    run Writer(LAST, LAST);
    run World();
    run Operator();
    run Monitor()
  }
}
