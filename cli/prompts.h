/* Prompts of one command: words, rows of a file, or standard input, as token
 * ids. */
#ifndef DYTI_CLI_PROMPTS_H
#define DYTI_CLI_PROMPTS_H

#include "data/data.h"
#include "format/chat_template.h"
#include "format/tokenizer.h"

/* Where they come from.  Borrowed. */
struct dyti_prompt_source {
    char *const *word; /* [words]; one prompt each */
    int words;
    const char *jsonl; /* a file, "-": standard input; NULL: none */
    bool chat;         /* they are users' messages */
    const char *system, *template_name; /* of a chat; NULL: none, the model's */
};

struct dyti_prompts {
    struct dyti_tokenizer tokenizer;
    struct dyti_chat_template *chat; /* NULL: prompts go in as they are */
    struct dyti_prompt *prompt;      /* [count] */
    char **text;                     /* [count] as given */
    uint32_t count;
};

/* All of them; without words and rows, standard input as one.  *p is zeroed
 * before, and to be given back in any case.
 *   dir  the model's */
enum dyt_status dyti_prompts_gather(struct dyti_prompts *p,
                                    const struct dyti_prompt_source *from,
                                    const char *dir);
void dyti_prompts_fini(struct dyti_prompts *p);

#endif /* DYTI_CLI_PROMPTS_H */
