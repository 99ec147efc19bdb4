/* What each family's template writes for plain messages (no tools). */
#include "format/chat_builtin.h"

#include "format/tokenizer_text.h"

#include "base/hash.h"

#include "base/banned.h"

uint64_t dyti_chat_template_hash(const char *text)
{
    size_t bytes = strlen(text);

    bytes -= bytes > 0 && text[bytes - 1] == '\n';
    return dyti_fingerprint_bytes(DYTI_FINGERPRINT_SEED, text, bytes);
}

/* ---- text --------------------------------------------------------------- */

void dyti_chat_put_bytes(struct dyti_chat_text *to, const char *text,
                         size_t bytes)
{
    if (to->st == DYT_OK && to->bytes + bytes + 1 > to->cap) {
        size_t want = (to->bytes + bytes + 1) * 2;
        char *bigger = realloc(to->text, want);

        if (bigger == NULL) {
            to->st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu bytes of chat", want);
        } else {
            to->text = bigger;
            to->cap = want;
        }
    }
    if (to->st == DYT_OK) {
        memcpy(to->text + to->bytes, text, bytes);
        to->bytes += bytes;
        to->text[to->bytes] = '\0';
    }
}

void dyti_chat_put(struct dyti_chat_text *to, const char *text)
{
    dyti_chat_put_bytes(to, text, strlen(text));
}

/* Python's str.isspace: White_Space and four separators of ASCII. */
static bool strips(int32_t code)
{
    return dyti_is_space(code) || (code >= 0x1c && code <= 0x1f);
}

static void put_trimmed(struct dyti_chat_text *to, const char *text)
{
    size_t lo = 0, hi = strlen(text), used = 0;

    while (lo < hi && strips(dyti_utf8_next(text + lo, hi - lo, &used))) {
        lo += used;
    }
    while (hi > lo) {
        size_t at = dyti_utf8_before(text, hi);

        if (!strips(dyti_utf8_next(text + at, hi - at, &used))) {
            break;
        }
        hi = at;
    }
    dyti_chat_put_bytes(to, text + lo, hi - lo);
}

static bool is_role(const struct dyti_chat_message *message, const char *role)
{
    return strcmp(message->role, role) == 0;
}

/* ---- ChatML ------------------------------------------------------------- */

static void put_turn(struct dyti_chat_text *to, const char *role,
                     const char *content)
{
    dyti_chat_put(to, "<|im_start|>");
    dyti_chat_put(to, role);
    dyti_chat_put(to, "\n");
    dyti_chat_put(to, content);
    dyti_chat_put(to, "<|im_end|>\n");
}

static void write_chatml(const struct dyti_chat_builtin *row,
                         const struct dyti_chat_job *job,
                         struct dyti_chat_text *to)
{
    if (row->bos) {
        dyti_chat_put(to, job->bos);
    }
    if (row->system != NULL && !is_role(&job->message[0], "system")) {
        put_turn(to, "system", row->system);
    }
    for (size_t i = 0; i < job->count; i++) {
        put_turn(to, job->message[i].role, job->message[i].content);
    }
    if (job->add_generation_prompt) {
        dyti_chat_put(to, "<|im_start|>assistant\n");
    }
}

/* ---- Qwen3 -------------------------------------------------------------- */

#define THINK   "<think>"
#define THOUGHT "</think>"

struct part {
    const char *text;
    size_t bytes;
};

static struct part strip_newlines(struct part p, bool left, bool right)
{
    while (left && p.bytes > 0 && p.text[0] == '\n') {
        p.text++;
        p.bytes--;
    }
    while (right && p.bytes > 0 && p.text[p.bytes - 1] == '\n') {
        p.bytes--;
    }
    return p;
}

/* Behind the last occurrence of `mark` in p, all of p if there is none. */
static struct part after_last(struct part p, const char *mark)
{
    size_t length = strlen(mark);

    for (size_t at = p.bytes; p.bytes >= length && at >= length; at--) {
        if (memcmp(p.text + at - length, mark, length) == 0) {
            return (struct part){p.text + at, p.bytes - at};
        }
    }
    return p;
}

/* An earlier answer's thoughts are left out; those after the last question
 * stay. */
static void split_thought(const char *content, struct part *thought,
                          struct part *answer)
{
    const char *end = strstr(content, THOUGHT);

    *thought = (struct part){"", 0};
    *answer = (struct part){content, strlen(content)};
    if (end == NULL) {
        return;
    }
    *thought = strip_newlines((struct part){content, (size_t)(end - content)},
                              false, true);
    *thought = strip_newlines(after_last(*thought, THINK), true, false);
    *answer = strip_newlines(after_last(*answer, THOUGHT), true, false);
}

static size_t last_question(const struct dyti_chat_job *job)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";

    for (size_t i = job->count; i-- > 0;) {
        const char *content = job->message[i].content;
        size_t bytes = strlen(content);

        if (is_role(&job->message[i], "user") &&
            !(strncmp(content, open, sizeof(open) - 1) == 0 &&
              bytes >= sizeof(close) - 1 &&
              strcmp(content + bytes - (sizeof(close) - 1), close) == 0)) {
            return i;
        }
    }
    return job->count - 1;
}

static void put_answer(const struct dyti_chat_job *job, size_t i,
                       size_t question, struct dyti_chat_text *to)
{
    struct part thought, answer;

    split_thought(job->message[i].content, &thought, &answer);
    dyti_chat_put(to, "<|im_start|>assistant\n");
    if (i > question && (i + 1 == job->count || thought.bytes > 0)) {
        thought = strip_newlines(thought, true, true);
        answer = strip_newlines(answer, true, false);
        dyti_chat_put(to, THINK "\n");
        dyti_chat_put_bytes(to, thought.text, thought.bytes);
        dyti_chat_put(to, "\n" THOUGHT "\n\n");
    }
    dyti_chat_put_bytes(to, answer.text, answer.bytes);
    dyti_chat_put(to, "<|im_end|>\n");
}

static void write_qwen3(const struct dyti_chat_builtin *row,
                        const struct dyti_chat_job *job,
                        struct dyti_chat_text *to)
{
    size_t question = last_question(job);

    for (size_t i = 0; i < job->count; i++) {
        if (is_role(&job->message[i], "assistant")) {
            put_answer(job, i, question, to);
        } else {
            put_turn(to, job->message[i].role, job->message[i].content);
        }
    }
    if (job->add_generation_prompt) {
        dyti_chat_put(to, "<|im_start|>assistant\n");
        dyti_chat_put(to, row->no_think ? THINK "\n\n" THOUGHT "\n\n" : "");
    }
}

/* ---- Llama 3 ------------------------------------------------------------ */

static void put_header(struct dyti_chat_text *to, const char *role)
{
    dyti_chat_put(to, "<|start_header_id|>");
    dyti_chat_put(to, role);
    dyti_chat_put(to, "<|end_header_id|>\n\n");
}

static void put_llama_turns(const struct dyti_chat_job *job, size_t first,
                            struct dyti_chat_text *to)
{
    for (size_t i = first; i < job->count; i++) {
        put_header(to, job->message[i].role);
        put_trimmed(to, job->message[i].content);
        dyti_chat_put(to, "<|eot_id|>");
    }
    if (job->add_generation_prompt) {
        put_header(to, "assistant");
    }
}

static void write_llama3(const struct dyti_chat_builtin *row,
                         const struct dyti_chat_job *job,
                         struct dyti_chat_text *to)
{
    (void)row;
    dyti_chat_put(to, job->bos);
    put_llama_turns(job, 0, to);
}

/* 3.1 and 3.2 always have a system turn with two dates. */
static void write_llama31(const struct dyti_chat_builtin *row,
                          const struct dyti_chat_job *job,
                          struct dyti_chat_text *to)
{
    bool own = is_role(&job->message[0], "system");

    dyti_chat_put(to, job->bos);
    put_header(to, "system");
    dyti_chat_put(to, "Cutting Knowledge Date: December 2023\nToday Date: ");
    dyti_chat_put(to, row->system != NULL ? row->system : job->date);
    dyti_chat_put(to, "\n\n");
    if (own) {
        put_trimmed(to, job->message[0].content);
    }
    dyti_chat_put(to, "<|eot_id|>");
    put_llama_turns(job, own ? 1 : 0, to);
}

/* ---- Mistral ------------------------------------------------------------ */

/* Users and assistants take turns, a user first. */
static bool alternates(const struct dyti_chat_job *job, size_t first,
                       struct dyti_chat_text *to)
{
    for (size_t i = first; i < job->count; i++) {
        bool user = (i - first) % 2 == 0;

        if (!is_role(&job->message[i], user ? "user" : "assistant")) {
            to->st =
                DYTI_FAIL(DYT_ERR_INVALID,
                          "message %zu has role %.20s; this chat template "
                          "wants %s there",
                          i, job->message[i].role, user ? "user" : "assistant");
            return false;
        }
    }
    return true;
}

static void put_mistral_turn(const struct dyti_chat_builtin *row,
                             const struct dyti_chat_job *job, size_t i,
                             const char *system, struct dyti_chat_text *to)
{
    const struct dyti_chat_message *m = &job->message[i];

    if (is_role(m, "system")) {
        dyti_chat_put(to, row->system_open);
        dyti_chat_put(to, m->content);
        dyti_chat_put(to, "[/SYSTEM_PROMPT]");
        return;
    }
    if (is_role(m, "user")) {
        dyti_chat_put(to, row->open);
        if (system != NULL) {
            dyti_chat_put(to, system);
            dyti_chat_put(to, "\n\n");
        }
        dyti_chat_put(to, m->content);
        dyti_chat_put(to, row->close);
        return;
    }
    dyti_chat_put(to, row->before_answer);
    dyti_chat_put(to, m->content);
    dyti_chat_put(to, job->eos);
    dyti_chat_put(to, row->after_answer);
}

static void write_mistral(const struct dyti_chat_builtin *row,
                          const struct dyti_chat_job *job,
                          struct dyti_chat_text *to)
{
    bool joins = row->system_place == DYTI_SYSTEM_FIRST ||
                 row->system_place == DYTI_SYSTEM_LAST;
    size_t first = joins && is_role(&job->message[0], "system") ? 1 : 0;
    const char *system = first == 1 ? job->message[0].content : NULL;
    size_t at = row->system_place == DYTI_SYSTEM_FIRST ? first : job->count - 1;

    if (row->system_place != DYTI_SYSTEM_TURN && !alternates(job, first, to)) {
        return;
    }
    dyti_chat_put(to, job->bos);
    for (size_t i = first; i < job->count; i++) {
        put_mistral_turn(row, job, i, i == at ? system : NULL, to);
    }
}

/* ---- the table ---------------------------------------------------------- */

/* Hashes: the texts that the models' own directories carry, where several
 * spellings of one template are around each has its own. */
static const struct dyti_chat_builtin builtins[] = {
    {.name = "chatml",
     .write = write_chatml,
     .hash = {0x3e4344d1d1e8b245, 0xe69e8e1e0f999bdd, 0x7eeb82478f506eda,
              0x9124643773808442}},
    {.name = "chatml-bos",
     .write = write_chatml,
     .hash = {0x67801b6f08a7ae51},
     .bos = true},
    {.name = "smollm2",
     .write = write_chatml,
     .hash = {0x4a89a69462f21793, 0xffad1d629d8691a1},
     .system = "You are a helpful AI assistant named SmolLM, trained by "
               "Hugging Face"},
    {.name = "qwen2",
     .write = write_chatml,
     .hash = {0x93ccda05940349a9, 0x2b77b1361ceeca1c},
     .system = "You are a helpful assistant."},
    {.name = "hermes3",
     .write = write_chatml,
     .hash = {0x56515947090648b5},
     .bos = true,
     .system = "You are a helpful assistant."},
    {.name = "qwen2.5",
     .write = write_chatml,
     .hash = {0x47b263f7ab4ea45c, 0xcbe01363a0b3e2b3},
     .system = "You are Qwen, created by Alibaba Cloud. You are a helpful "
               "assistant."},
    {.name = "qwen3",
     .write = write_qwen3,
     .hash = {0xbd51ddcf5f957e22, 0xf4818fcec883195c}},
    {.name = "qwen3-no-think", .write = write_qwen3, .no_think = true},
    {.name = "qwen3-2507", .write = write_chatml, .hash = {0x14d046e8be58a93c}},
    {.name = "llama-3", .write = write_llama3, .hash = {0x2851618636c9ec66}},
    {.name = "llama-3.1",
     .write = write_llama31,
     .hash = {0x6316ad7716650104},
     .system = "26 Jul 2024"},
    {.name = "llama-3.2", .write = write_llama31, .hash = {0xa881a5b2f0b29db5}},
    {.name = "mistral",
     .write = write_mistral,
     .hash = {0x4352b75c6afd9e72},
     .open = "[INST] ",
     .close = " [/INST]",
     .before_answer = "",
     .after_answer = " "},
    {.name = "mistral-v1",
     .write = write_mistral,
     .hash = {0x540e07fed4be265d},
     .open = " [INST] ",
     .close = " [/INST]",
     .before_answer = " ",
     .after_answer = "",
     .system_place = DYTI_SYSTEM_FIRST},
    {.name = "mistral-v3",
     .write = write_mistral,
     .hash = {0xba4d9c23ec3bb282},
     .open = "[INST] ",
     .close = "[/INST]",
     .before_answer = " ",
     .after_answer = "",
     .system_place = DYTI_SYSTEM_LAST},
    {.name = "mistral-v7",
     .write = write_mistral,
     .hash = {0x674d4c0c7978b0e4},
     .open = "[INST] ",
     .close = "[/INST]",
     .before_answer = " ",
     .after_answer = "",
     .system_place = DYTI_SYSTEM_TURN,
     .system_open = "[SYSTEM_PROMPT] "},
    {.name = "mistral-v7-tekken",
     .write = write_mistral,
     .hash = {0x63eeabaee9db364a},
     .open = "[INST]",
     .close = "[/INST]",
     .before_answer = "",
     .after_answer = "",
     .system_place = DYTI_SYSTEM_TURN,
     .system_open = "[SYSTEM_PROMPT]"},
};

const struct dyti_chat_builtin *dyti_chat_builtin_at(size_t index)
{
    return index < sizeof(builtins) / sizeof(builtins[0]) ? &builtins[index]
                                                          : NULL;
}
