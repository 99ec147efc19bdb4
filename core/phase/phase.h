/* Phase: answers "what may happen now?"  The manager's state machine as one
 * written table of transitions; pure, no clock, no message.
 *
 *            ┌──────────── commit ───────────┐
 *   START ─► TRAIN_IDLE ─ switch ─► SWITCH_TO_ROLLOUT ─ commit ─► ROLLOUT_IDLE
 *            ▲   │ train                                     generate │   ▲
 *            │   ▼                                                    ▼   │
 *            │ TRAINING                            GENERATING ─ scored ───┘
 *            └── commit ── SWITCH_TO_TRAIN ◄─ switch ─ ROLLOUT_IDLE
 *
 * A switch that aborts goes back to the idle state it came from.  STOPPING and
 * FAILED are reached from everywhere and left only to STOPPED.
 */
#ifndef DYTI_PHASE_PHASE_H
#define DYTI_PHASE_PHASE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum dyti_phase_state {
    DYTI_STATE_START,        /* workers build and load */
    DYTI_STATE_TRAIN_IDLE,   /* train layout is whole */
    DYTI_STATE_TO_ROLLOUT,   /* a switch runs */
    DYTI_STATE_ROLLOUT_IDLE, /* rollout layout is whole and serving */
    DYTI_STATE_GENERATING,   /* rollout and its scoring */
    DYTI_STATE_TO_TRAIN,     /* a switch runs */
    DYTI_STATE_TRAINING,
    DYTI_STATE_SAVING, /* a checkpoint is written, from TRAIN_IDLE */
    DYTI_STATE_STOPPING,
    DYTI_STATE_STOPPED,
    DYTI_STATE_FAILED,
    DYTI_STATE_COUNT
};

enum dyti_phase_event {
    DYTI_EVENT_LOADED,
    DYTI_EVENT_SWITCH, /* begin one */
    DYTI_EVENT_COMMIT,
    DYTI_EVENT_ABORT, /* the switch; the old layout is whole */
    DYTI_EVENT_GENERATE,
    DYTI_EVENT_SCORED, /* all samples of the phase are in and judged */
    DYTI_EVENT_TRAIN,
    DYTI_EVENT_TRAINED,
    DYTI_EVENT_SAVE,
    DYTI_EVENT_SAVED,
    DYTI_EVENT_STOP,
    DYTI_EVENT_FAIL,
    DYTI_EVENT_ENDED, /* all workers are gone */
    DYTI_EVENT_COUNT
};

/* What the machine knows; plain value. */
struct dyti_phase {
    enum dyti_phase_state state;
    uint64_t epoch;   /* switches begun; the one that runs holds this number */
    uint64_t version; /* committed optimizer updates in the train layout */
    uint64_t served;  /* version that the rollout layout holds */
    bool serving;     /* a rollout layout was committed at least once */
};

const char *dyti_phase_state_name(enum dyti_phase_state state);
const char *dyti_phase_event_name(enum dyti_phase_event event);

void dyti_phase_init(struct dyti_phase *phase, uint64_t version);

/**
 * Take one event.
 *
 * @param version  with DYTI_EVENT_TRAINED: the version after the step; it never
 *                 goes down
 * @return DYT_OK
 * @return DYT_ERR_BUSY   a second switch while one runs: names the epoch that
 *                        holds the lock
 * @return DYT_ERR_STATE  not allowed here: names state and event; nothing
 *                        changed
 */
enum dyt_status dyti_phase_take(struct dyti_phase *phase,
                                enum dyti_phase_event event, uint64_t version);

#endif /* DYTI_PHASE_PHASE_H */
