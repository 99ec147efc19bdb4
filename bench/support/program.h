/* Other programs and their folders, for benchmarks that run whole programs. */
#ifndef DYT_BENCH_PROGRAM_H
#define DYT_BENCH_PROGRAM_H

#include <stdbool.h>
#include <stdio.h>

/* A format's text, owned by the caller; never NULL: ends where memory does. */
char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* DYNATRAIN_CACHE, or dynatrain/ in the user's cache; owned by the caller. */
char *cache_folder(void);

/* An empty folder for one run, owned by the caller; NULL: said on stderr. */
char *folder_create(void);

/* Deletes it and all that is in it. */
void folder_remove(char *folder);

/* Runs argv[0] to its end, with its stdout in `out_path` and its stderr in
 * `error_path`.  false: it could not start, or did not end with 0; the last
 * line of its stderr is said. */
bool program_run(char *const argv[], const char *out_path,
                 const char *error_path);

/* What a program that failed said last: its stderr, which is read to its end;
 * NULL: nothing is known. */
void program_say_last(const char *name, FILE *errors);

#endif /* DYT_BENCH_PROGRAM_H */
