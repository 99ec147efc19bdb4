#include "phase/phase.h"

static const char *const states[DYTI_STATE_COUNT] = {
    [DYTI_STATE_START] = "start",
    [DYTI_STATE_TRAIN_IDLE] = "train idle",
    [DYTI_STATE_TO_ROLLOUT] = "switching to rollout",
    [DYTI_STATE_ROLLOUT_IDLE] = "rollout idle",
    [DYTI_STATE_GENERATING] = "generating",
    [DYTI_STATE_TO_TRAIN] = "switching to train",
    [DYTI_STATE_TRAINING] = "training",
    [DYTI_STATE_SAVING] = "saving",
    [DYTI_STATE_STOPPING] = "stopping",
    [DYTI_STATE_STOPPED] = "stopped",
    [DYTI_STATE_FAILED] = "failed",
};

static const char *const events[DYTI_EVENT_COUNT] = {
    [DYTI_EVENT_LOADED] = "loaded",     [DYTI_EVENT_SWITCH] = "switch",
    [DYTI_EVENT_COMMIT] = "commit",     [DYTI_EVENT_ABORT] = "abort",
    [DYTI_EVENT_GENERATE] = "generate", [DYTI_EVENT_SCORED] = "scored",
    [DYTI_EVENT_TRAIN] = "train",       [DYTI_EVENT_TRAINED] = "trained",
    [DYTI_EVENT_SAVE] = "save",         [DYTI_EVENT_SAVED] = "saved",
    [DYTI_EVENT_STOP] = "stop",         [DYTI_EVENT_FAIL] = "fail",
    [DYTI_EVENT_ENDED] = "ended",
};

/* The whole of it.  Stop and fail, allowed everywhere but at the end, are in
 * dyti_phase_take. */
static const struct {
    enum dyti_phase_state from;
    enum dyti_phase_event event;
    enum dyti_phase_state to;
} allowed[] = {
    {DYTI_STATE_START, DYTI_EVENT_LOADED, DYTI_STATE_TRAIN_IDLE},
    {DYTI_STATE_TRAIN_IDLE, DYTI_EVENT_SWITCH, DYTI_STATE_TO_ROLLOUT},
    {DYTI_STATE_TO_ROLLOUT, DYTI_EVENT_COMMIT, DYTI_STATE_ROLLOUT_IDLE},
    {DYTI_STATE_TO_ROLLOUT, DYTI_EVENT_ABORT, DYTI_STATE_TRAIN_IDLE},
    {DYTI_STATE_ROLLOUT_IDLE, DYTI_EVENT_GENERATE, DYTI_STATE_GENERATING},
    {DYTI_STATE_GENERATING, DYTI_EVENT_SCORED, DYTI_STATE_ROLLOUT_IDLE},
    {DYTI_STATE_ROLLOUT_IDLE, DYTI_EVENT_SWITCH, DYTI_STATE_TO_TRAIN},
    {DYTI_STATE_TO_TRAIN, DYTI_EVENT_COMMIT, DYTI_STATE_TRAIN_IDLE},
    {DYTI_STATE_TO_TRAIN, DYTI_EVENT_ABORT, DYTI_STATE_ROLLOUT_IDLE},
    {DYTI_STATE_TRAIN_IDLE, DYTI_EVENT_TRAIN, DYTI_STATE_TRAINING},
    {DYTI_STATE_TRAINING, DYTI_EVENT_TRAINED, DYTI_STATE_TRAIN_IDLE},
    {DYTI_STATE_TRAIN_IDLE, DYTI_EVENT_SAVE, DYTI_STATE_SAVING},
    {DYTI_STATE_SAVING, DYTI_EVENT_SAVED, DYTI_STATE_TRAIN_IDLE},
    {DYTI_STATE_STOPPING, DYTI_EVENT_ENDED, DYTI_STATE_STOPPED},
    {DYTI_STATE_FAILED, DYTI_EVENT_ENDED, DYTI_STATE_STOPPED},
};

const char *dyti_phase_state_name(enum dyti_phase_state state)
{
    return (uint32_t)state < DYTI_STATE_COUNT ? states[state] : "?";
}

const char *dyti_phase_event_name(enum dyti_phase_event event)
{
    return (uint32_t)event < DYTI_EVENT_COUNT ? events[event] : "?";
}

void dyti_phase_init(struct dyti_phase *phase, uint64_t version)
{
    *phase = (struct dyti_phase){.state = DYTI_STATE_START, .version = version};
}

static bool over(enum dyti_phase_state state)
{
    return state == DYTI_STATE_STOPPED || state == DYTI_STATE_FAILED;
}

static bool switching(enum dyti_phase_state state)
{
    return state == DYTI_STATE_TO_ROLLOUT || state == DYTI_STATE_TO_TRAIN;
}

/* Where `event` leads; DYTI_STATE_COUNT: nowhere. */
static enum dyti_phase_state target(enum dyti_phase_state from,
                                    enum dyti_phase_event event)
{
    if (event == DYTI_EVENT_FAIL && !over(from)) {
        return DYTI_STATE_FAILED;
    }
    if (event == DYTI_EVENT_STOP && !over(from) &&
        from != DYTI_STATE_STOPPING) {
        return DYTI_STATE_STOPPING;
    }
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
        if (allowed[i].from == from && allowed[i].event == event) {
            return allowed[i].to;
        }
    }
    return DYTI_STATE_COUNT;
}

static void apply(struct dyti_phase *phase, enum dyti_phase_event event,
                  uint64_t version)
{
    switch (event) {
    case DYTI_EVENT_SWITCH:
        phase->epoch++;
        break;
    case DYTI_EVENT_COMMIT:
        if (phase->state == DYTI_STATE_TO_ROLLOUT) {
            phase->served = phase->version;
            phase->serving = true;
        }
        break;
    case DYTI_EVENT_TRAINED:
        phase->version = version;
        break;
    default:
        break;
    }
}

enum dyt_status dyti_phase_take(struct dyti_phase *phase,
                                enum dyti_phase_event event, uint64_t version)
{
    enum dyti_phase_state to;

    if (event == DYTI_EVENT_SWITCH && switching(phase->state)) {
        return DYTI_FAIL(DYT_ERR_BUSY,
                         "a switch is running: epoch %llu holds the lock",
                         (unsigned long long)phase->epoch);
    }
    to = target(phase->state, event);
    if (to == DYTI_STATE_COUNT) {
        return DYTI_FAIL(DYT_ERR_STATE, "%s is not allowed while %s%s",
                         dyti_phase_event_name(event),
                         dyti_phase_state_name(phase->state),
                         event == DYTI_EVENT_GENERATE && !phase->serving
                             ? ": no weights were committed yet"
                             : "");
    }
    if (event == DYTI_EVENT_TRAINED && version < phase->version) {
        return DYTI_FAIL(DYT_ERR_STATE, "version %llu after version %llu",
                         (unsigned long long)version,
                         (unsigned long long)phase->version);
    }
    apply(phase, event, version);
    phase->state = to;
    return DYT_OK;
}
