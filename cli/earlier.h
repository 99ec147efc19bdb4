/* What an earlier run left in the folder that a new one begins in. */
#ifndef DYTI_CLI_EARLIER_H
#define DYTI_CLI_EARLIER_H

#include "format/file.h"

/**
 * Moves metrics, samples, checkpoints and exports of an earlier run into
 * FOLDER/earlier-N, N the first that is free: nothing of it is lost, and a
 * resume of the new run takes none of it for its own.
 * @param out_to  where it is now; "" where there was nothing
 * @return DYT_ERR_IO  names what could not be moved
 */
enum dyt_status dyti_earlier_aside(const char *folder,
                                   char out_to[DYTI_PATH_BYTES]);

#endif /* DYTI_CLI_EARLIER_H */
