/* A user's program in C11: the public headers and nothing else. */
#include <dynatrain/api.h>
#include <dynatrain/box.h>
#include <dynatrain/status.h>
#include <dynatrain/version.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    struct dyt_box a = {2, {0, 0}, {4, 6}}, b = {2, {2, 3}, {8, 8}}, both;
    struct dyt_box odd = {1, {0}, {4}};
    uint64_t count = 0;

    if (dyt_box_intersect(&a, &b, &both) != DYT_OK ||
        dyt_box_count(&both, &count) != DYT_OK || count != 6) {
        fprintf(stderr, "boxes: %s\n", dyt_error_text());
        return 1;
    }
    if (dyt_box_intersect(&a, &odd, &both) != DYT_ERR_INVALID ||
        strstr(dyt_error_text(), "DYT_ERR_INVALID") == NULL) {
        fprintf(stderr, "an error without its text\n");
        return 1;
    }
    return dyt_version() >= DYT_VERSION ? 0 : 1;
}
