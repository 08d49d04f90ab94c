/* The protocol of claims, leases, records and the outbox, for a model checker: `make model` explores every order of its
   steps. docs/model.md ties each action (`inline`) to the statement that implements it, and says what is left out.

   One thing, a reservation or an event that waits for its time, opens one delivery. A producer, a relay, a broker, two
   workers, somebody who cancels and somebody who re-opens work on it, and whoever works may die.

   An `atomic` block is one transaction: row locks make it so. Where they don't, there are two steps.

   Time is relative: a timer holds the ticks that are left, and 0 is "now or past". So time goes on for ever in a finite
   number of states; between any two steps any number of ticks may pass, and that is what a slow worker is.

   To be given: -DCRASHES=, of relay and workers together, -DWORKERS=, -DWITHOUT= a guard or NOTHING, and -DFOLLOWED=true
   for an event and its delivery, or false for a reservation, whose delivery is as that of an event. */

#define LEASE         1 /* ticks */
#define HORIZON       1
#define PUBLISH_LEASE 2 /* longer than a lease, as it is by default */
#define NEVER         9 /* only where the publish lease is taken out */
#define LOST          1 /* answers to a COMMIT */

/* The guards. Without one of them a property breaks: tests/model shows which. */
mtype:guard = { NOTHING, CONFIRM_CLOCK, EXPIRE_CLOCK, CLOCK_AFTER_LOCK, STATUS, FANNED_OUT, WITHDRAWN,
    SECOND_STATEMENT, CANCEL_REQUESTED, LEASE_RUNS, TOKEN, TOKEN_CLEARED, TOKEN_GIVING_BACK, GRACE, IN_FLIGHT,
    TAKE_TOKEN, PUBLISHED_LEASE, ROW_MADE, ROW_MOVED, ROW_DELETED };
#define with(guard) (WITHOUT != guard)

/* The properties, by the invariants of the design. They are never set: pan's message shows the name of what broke. */
bool legal, in_time;                                              /* 1: transitions */
bool one_delivery, one_holder, newest_records, own_record_counts; /* 3: claims */
bool one_row, row_at_lease_end;                                   /* 4: the outbox */
bool durable_before_ack, woken_before_put_off;                    /* 6: nothing is let go */
bool cancel_reaches;                                              /* and what a cancel promises */
#define must(property, condition) assert((condition) || property)

mtype = { nothing, held, confirmed, released, expired, waiting, fanned_out, scheduled, leased, finished, cancelled };

/* The ledger. */
mtype first = nothing;    /* the reservation, or the event that waits */
byte first_due;           /* until expires_at, or until due_at less the horizon */
bool withdrawn;           /* events.cancelled_at */
mtype delivery = nothing; /* of the reservation's first transition, or of that event; `finished`: delivered or dead */
byte due;                 /* until next_attempt_at */
byte token, lease;        /* whose claim (0: nobody's), until lease_until */
bool cancel_requested;
typedef Row { bool is, taken; byte look };
Row row[2];               /* the outbox; no two takes have the same token, so one bit says whether it stands */
#define FIRST    0
#define DELIVERY 1

bool bag[2];              /* the broker: has a wake-up for it; a second one would say the same */
byte crashes, lost;

/* What only the properties know. */
byte made;                /* deliveries of the event */
byte owner;               /* who claimed last, and has not ended it */
bool woken[2];            /* a wake-up went out since the row was taken */
#define first_open    (first == held || first == waiting && !withdrawn)
#define delivery_open (delivery == scheduled || delivery == leased)
#define due_of(ref)   (ref == FIRST -> first_due : due)

/* 6 in the long run: whatever is open is looked at again. With fairness everybody acts, or decides that he does not. */
#ifdef LOOKED
bool looked[2];
#define look_at(ref) looked[ref] = true
#define OR_NOT       :: skip
ltl looked_at_again {
    []<> (!first_open || looked[FIRST]) && []<> (!delivery_open || !FOLLOWED || looked[DELIVERY])
}
#else
#define look_at(ref) skip
#define OR_NOT
#endif

/* Ends every transaction. */
inline audit() {
    must(one_row, row[FIRST].is == first_open && row[DELIVERY].is == delivery_open);
    must(row_at_lease_end, delivery != leased || lease == 0 || row[DELIVERY].look <= lease)
}

/* What the triggers do: the outbox row of what was opened or changed, or has ended. */
inline look_in(ref, ticks) { row[ref].is = true; row[ref].look = ticks; row[ref].taken = false; woken[ref] = false }
inline close(ref) { row[ref].is = false; row[ref].look = 0; row[ref].taken = false; woken[ref] = false }
inline schedule(ticks) {
    delivery = scheduled; token = 0; lease = 0; due = ticks;
    look_in(DELIVERY, (ticks > HORIZON -> ticks - HORIZON : 0))
}
inline end_delivery(state) {
    delivery = state; token = 0; lease = 0; due = 0; cancel_requested = false;
    close(DELIVERY); row[DELIVERY].is = !with(ROW_DELETED)
}
inline make_delivery(ticks) {
    made++;
    must(one_delivery, made == 1);
    schedule(ticks); row[DELIVERY].is = with(ROW_MADE)
}

/* -- The producer -- */

inline hold() { atomic { first = held; first_due = 1; look_in(FIRST, first_due - HORIZON); audit() } }
inline post() { atomic { first = waiting; first_due = 1; look_in(FIRST, first_due); audit() } }
/* The trigger of a reservation, after the row lock. `began` is the clock as it was when the statement began: nobody may
   decide by that, for it may have waited for the lock until past expires_at. */
#define AT (with(CLOCK_AFTER_LOCK) -> first_due : began)
inline transition(to, began) {
    late = false;
    if
    :: first == to /* already so: an ordinary result */
    :: with(EXPIRE_CLOCK) && first == held && to == expired && AT > 0 /* early: passed over */
    :: with(CONFIRM_CLOCK) && first == held && to == confirmed && AT == 0 -> late = true
    :: with(STATUS) && first != to && first != held && !(first == confirmed && to == released) /* another has won */
    :: else ->
        must(legal, first == held || first == confirmed && to == released);
        must(in_time, to != confirmed || first_due > 0);
        must(in_time, to != expired || first_due == 0);
        if :: first == held -> make_delivery(0) :: else fi; /* that event's delivery is as this one's */
        first = to; first_due = 0; close(FIRST)
    fi;
    audit()
}
inline move(to) {
    began = first_due;                          /* the statement begins */
    atomic { transition(to, began); began = 0 } /* and has the lock */
}
active proctype Producer() {
    byte began, times; bool late;
    if
    :: FOLLOWED -> post(); goto done
    :: else -> hold()
    fi;
    do
    :: times < 2 -> times++;
        if
        :: move(confirmed);
            if :: late -> move(expired) :: else fi /* on the spot, whether or not a worker has come round */
        :: move(released)
        fi
    :: break
    od;
done: skip
}

/* -- The relay -- */

#define crash crashes < CRASHES -> crashes++
/* The take's own two seconds are left out: what a dead relay took may be taken at once, sooner than it is. */
inline take(ref) {
    atomic {
        if
        :: row[FIRST].is && row[FIRST].look == 0 -> ref = FIRST
        :: row[DELIVERY].is && row[DELIVERY].look == 0 && FOLLOWED -> ref = DELIVERY
        fi;
        row[ref].taken = true; woken[ref] = false
    }
}
inline publish(ref) { atomic { bag[ref] = true; woken[ref] = true } }
inline put_off(ref) {
    atomic {
        if
        :: row[ref].is && (row[ref].taken || !with(TAKE_TOKEN)) ->
            must(woken_before_put_off, woken[ref]);
            row[ref].taken = false; woken[ref] = false;
            row[ref].look = (with(PUBLISHED_LEASE) -> PUBLISH_LEASE : NEVER)
        :: else /* it has changed: somebody has claimed it, and said when to look */
        fi;
        audit(); ref = 0
    }
}
inline die(ref) {
    atomic { crash; row[ref].taken = false; woken[ref] = false; ref = 0 } /* nobody has that token any more */
}
active proctype Relay() {
    byte ref;
end:
    do
    :: take(ref);
        if :: publish(ref) :: die(ref); goto end fi;
        if :: put_off(ref) :: die(ref) fi
    od
}

/* -- The broker, and the clock -- */

inline lose() { atomic { bag[FIRST] = false; bag[DELIVERY] = false } }
active proctype Broker() {
    if
    :: lose()
    OR_NOT
    fi
}
#define TICKS(timer) (timer > 0 && timer < NEVER)
#define pass(timer)  timer = (TICKS(timer) -> timer - 1 : timer)
inline tick() {
    atomic {
        TICKS(first_due) || TICKS(due) || TICKS(lease) || TICKS(row[FIRST].look) || TICKS(row[DELIVERY].look) ->
        pass(first_due); pass(due); pass(lease); pass(row[FIRST].look); pass(row[DELIVERY].look)
    }
}
active proctype Clock() {
end:
    do :: tick() od
}

/* -- The workers -- */

/* What is not due yet goes on a timer and is acknowledged: from then on it is lost if the worker dies. */
inline receive(ref) {
    atomic {
        if :: !mine && bag[FIRST] -> ref = FIRST :: !mine && bag[DELIVERY] -> ref = DELIVERY fi;
        bag[ref] = false;
        if :: due_of(ref) > 0 -> ack(ref) :: else fi
    }
}
inline ack(ref) { must(durable_before_ack, !row[ref].is || row[ref].look != NEVER) }
inline redeliver(ref) { if :: bag[ref] = true :: skip fi /* it was acknowledged, or the broker has lost it */ }
/* For what was early: only ever sooner, and after a pause. */
inline look_sooner(ref) {
    row[ref].taken = false; woken[ref] = false; row[ref].look = (row[ref].look > 1 -> 1 : row[ref].look)
}
inline expire() {
    if :: first == held -> transition(expired, first_due) :: else fi;
    if :: first == held -> look_sooner(FIRST) :: else fi /* early */
}
inline fan_out() {
    if
    :: first_due > 0 -> look_sooner(FIRST) /* early */
    :: with(WITHDRAWN) && withdrawn && first_due == 0
    :: with(FANNED_OUT) && first == fanned_out && first_due == 0
    :: else ->
        must(cancel_reaches, !withdrawn);
        first = fanned_out; close(FIRST); make_delivery(HORIZON)
    fi
}
inline claim() {
    if
    :: !delivery_open /* gone */
    :: with(LEASE_RUNS) && delivery == leased && lease > 0 /* somebody else's; its end has a row */
    :: with(CANCEL_REQUESTED) && delivery == leased && lease == 0 && cancel_requested ->
        end_delivery(cancelled); owner = 0
    :: delivery == scheduled && due > 0 -> look_sooner(DELIVERY) /* early */
    :: else ->
        must(one_holder, delivery == scheduled || lease == 0);
        must(cancel_reaches, !cancel_requested);
        delivery = leased; token = me; owner = me; lease = LEASE; due = 0; mine = true;
        look_in(DELIVERY, (with(ROW_MOVED) -> LEASE : row[DELIVERY].look))
    fi
}
/* The token alone decides: a lease that has ended and that nobody claimed counts still. Nothing changes when somebody
   newer owns it, or when the same token has recorded it before. */
inline record() {
    atomic {
        if
        :: (token == me || !with(TOKEN) && delivery_open) && (lease > 0 || with(GRACE)) ->
            must(newest_records, owner == me);
            owner = 0;
            if
            :: end_delivery(finished)
            :: cancel_requested -> end_delivery(cancelled)
            :: !cancel_requested -> schedule(1)
            fi;
            token = (with(TOKEN_CLEARED) -> 0 : me)
        :: else -> must(own_record_counts, owner != me)
        fi;
        audit();
        if :: mine = false :: lost < LOST -> lost++ fi /* was it committed? So the same token comes again. */
    }
}
inline give_back() {
    atomic {
        if
        :: token == me || !with(TOKEN_GIVING_BACK) && delivery == leased ->
            must(newest_records, owner == me);
            owner = 0;
            if :: cancel_requested -> end_delivery(cancelled) :: else -> schedule(0) fi
        :: else -> must(own_record_counts, owner != me)
        fi;
        audit(); mine = false
    }
}
proctype Worker(byte me) {
    byte ref; bool mine, late;
end:
    do
    :: receive(ref);
        if
        :: atomic { crash; redeliver(ref); ref = 0 }
        :: atomic {
            look_at(ref);
            if
            :: ref == DELIVERY -> claim()
            :: ref == FIRST && (first == waiting || first == fanned_out) -> fan_out()
            :: else -> expire()
            fi;
            audit(); ack(ref); ref = 0 } /* who dies before the acknowledgement is among those who die below */
#ifdef LOOKED
            atomic { looked[FIRST] = false; looked[DELIVERY] = false }
#endif
        fi
    :: mine -> record()
    :: mine -> give_back()
    :: atomic { mine && crashes < CRASHES -> crashes++; redeliver(DELIVERY); mine = false }
    od
}
init {
    atomic { byte me; for (me : 1 .. WORKERS) { run Worker(me) } }
}

/* -- By hand: of an event alone, for the delivery of a reservation is as its -- */

/* Two statements: the snapshot of the first, which waits for the event's lock, may be older than a fan-out. */
inline cancel() {
    saw = delivery != nothing;
    atomic {
        withdrawn = true;
        if :: first == waiting -> close(FIRST) :: else fi;
        if
        :: !with(SECOND_STATEMENT) && !saw
        :: delivery == scheduled -> end_delivery(cancelled)
        :: delivery == leased -> cancel_requested = true
        :: else
        fi;
        must(cancel_reaches, delivery != scheduled && (delivery != leased || cancel_requested));
        audit(); saw = false
    }
}
active proctype Canceller() {
    bool saw;
end:
    if
    :: FOLLOWED && (first == waiting || delivery != nothing) -> cancel()
    OR_NOT
    fi
}
inline reopen() {
    atomic {
        if
        :: with(IN_FLIGHT) && delivery == leased /* its outcome decides */
        :: else -> cancel_requested = false; schedule(0)
        fi;
        audit()
    }
}
active proctype Redriver() {
end:
    if
    :: FOLLOWED && delivery != nothing -> reopen()
    OR_NOT
    fi
}
