/* A queue in a folder, as a model for SPIN: two processes insert rows and one samples them, and one of the three may die at
   any step. The lock, the journal and the places of those that wait do what csrc/shared.h and csrc/waits.h do. `.ci/run`
   checks all of its states, and that each mutation below is found.

   Checked are: one process at most holds the lock; each row is delivered once, and none is lost whose insertion had
   returned; nobody sleeps while what it waits for is there, but behind a process that died where it waited, after which
   the others look again by themselves. Each of these macros breaks one of them:

   TAKES_PLACE_LATE     a place is taken after the lock is free
   SLEEPS_ANYWAY        a sleeper does not compare its ticket before it sleeps
   FREES_PLACE_FIRST    a place is free before its sleeper is woken
   WAKES_LATE           sleepers are woken after the lock is free
   COMMITS_LATE         rows are committed after the lock is free
   LOCKS_TWICE          a lock is looked at and taken in two steps
   COMMITS_FIRST        rows are committed before they are written */

#define PROCESSES 3
#define READER 2
#define NOBODY 7
#define CAPACITY 2
#define SAMPLE 2
#define INSERTIONS 2

byte holder = NOBODY, inside;    /* who holds the lock, and how many do */
bool busy;                       /* set by who holds the lock, and still set if it dies */
byte tail, head;                 /* rows inserted and delivered */
byte journal_tail, journal_head; /* those of complete operations */
byte written;                    /* rows whose content is complete */
byte place[PROCESSES];           /* rows that it waits for, 0 for none */
bool ticket[PROCESSES];          /* what it sleeps on; false once it is woken */
bool asleep[PROCESSES];
bool awaited;                    /* false if all places are free */
bool look_again;                 /* a process died where it waited: the others look again after some time */
byte returned, delivered;        /* rows whose insertion, or sample, has returned */
byte deaths;

#define AVAILABLE(p) (p == READER -> tail - head : CAPACITY - (tail - head))

/* One step at which a process may die. */
inline step(waits) {
  if
  :: skip
  :: atomic {
       deaths == 0 -> deaths = 1;
       if
       :: waits || place[me] != 0 -> look_again = true
       :: else
       fi;
       if
       :: holder == me -> holder = NOBODY; inside--
       :: else
       fi;
       goto dead
     }
  fi
}

inline lock() {
#ifdef LOCKS_TWICE
  holder == NOBODY;
#endif
  atomic {
#ifndef LOCKS_TWICE
    holder == NOBODY;
#endif
    holder = me;
    inside++;
    assert(inside == 1);
    if
    :: busy -> tail = journal_tail; head = journal_head /* its last holder died */
    :: else
    fi;
    busy = true
  }
}

inline unlock() { atomic { busy = false; inside--; holder = NOBODY } }

inline commit() { journal_tail = tail; journal_head = head }

/* Wakes those whose rows, or room, are there. */
inline wake() {
  if
  :: awaited ->
     room = CAPACITY - (tail - head); rows = tail - head; remaining = false;
     one = 0;
     do
     :: one < PROCESSES && place[one] != 0 && place[one] <= (one == READER -> rows : room) ->
        if
        :: one == READER -> rows = rows - place[one]
        :: else -> room = room - place[one]
        fi;
#ifdef FREES_PLACE_FIRST
        place[one] = 0;
        step(false);
#endif
        atomic { ticket[one] = false; asleep[one] = false };
        step(false);
        place[one] = 0;
        one++
     :: one < PROCESSES && place[one] != 0 && place[one] > (one == READER -> rows : room) -> remaining = true; one++
     :: one < PROCESSES && place[one] == 0 -> one++
     :: one == PROCESSES -> break
     od;
     awaited = remaining
  :: else
  fi
}

/* Sleeps until it is woken. */
inline sleep() {
  step(false);
#ifdef SLEEPS_ANYWAY
  asleep[me] = true;
#else
  atomic { if :: ticket[me] -> asleep[me] = true :: else fi };
#endif
end_asleep:
  if
  :: !asleep[me]
  :: look_again || (busy && holder == NOBODY) -> asleep[me] = false  /* after some time, if nobody else comes */
  fi;
  step(true)
}

inline take_place() { atomic { place[me] = need; ticket[me] = true; awaited = true } }

proctype Process(byte me; byte need; byte times) {
  byte one, room, rows;
  bool remaining;
  do
  :: times == 0 -> goto dead
  :: else ->
     lock();
     place[me] = 0;
     step(true);
     if
     :: AVAILABLE(me) >= need ->
#ifdef COMMITS_FIRST
        atomic { if :: me == READER :: else -> journal_tail = tail + 1 fi };
        step(false);
#endif
        if
        :: me == READER -> assert(written >= head + need); head = head + need
        :: else -> written = tail + 1; step(false); tail = tail + 1
        fi;
        step(false);
#ifdef COMMITS_LATE
        unlock();
        step(false);
        commit();
#elif defined(WAKES_LATE)
        atomic { commit() };
        unlock();
        step(false);
        wake();
#else
        atomic { commit() };
        step(false);
        wake();
        step(false);
        unlock();
#endif
        atomic {
          if
          :: me == READER -> delivered = delivered + need
          :: else -> returned = returned + need
          fi;
          times--;
          assert(journal_tail >= returned && journal_head >= delivered && written >= journal_tail)
        }
     :: else ->
#ifdef TAKES_PLACE_LATE
        unlock();
        step(false);
        take_place();
#else
        take_place();
        step(true);
        wake();
        step(true);
        unlock();
#endif
        sleep()
     fi
  od;
dead:
  skip
}

/* When nothing else can happen: who sleeps has not got what it waits for. */
active proctype Monitor() {
  byte p;
  timeout -> atomic {
    p = 0;
    do
    :: p < PROCESSES -> assert(!asleep[p] || AVAILABLE(p) < (p == READER -> SAMPLE : 1)); p++
    :: else -> break
    od;
    assert(journal_tail >= returned && journal_tail <= returned + deaths);
    assert(journal_head >= delivered && journal_head <= delivered + deaths * SAMPLE)
  }
}

init {
  atomic { run Process(0, 1, INSERTIONS); run Process(1, 1, INSERTIONS); run Process(READER, SAMPLE, INSERTIONS) }
}
