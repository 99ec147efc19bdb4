#include "cli/text_plot.h"

#include <math.h>

#define COLUMNS 60u
#define ROWS    10u

static double share_mean(const double *value, size_t count, size_t column,
                         size_t columns)
{
    size_t from = count * column / columns, to = count * (column + 1) / columns;
    double sum = 0.0;

    for (size_t i = from; i < to; i++) {
        sum += value[i];
    }
    return sum / (double)(to - from);
}

void dyti_text_plot(FILE *out, const char *title, const double *value,
                    size_t count)
{
    size_t columns = count < COLUMNS ? count : COLUMNS;
    double mean[COLUMNS], low = 0.0, high = 1e-9;

    for (size_t c = 0; c < columns; c++) {
        mean[c] = share_mean(value, count, c, columns);
        if (isfinite(mean[c])) {
            low = fmin(low, mean[c]);
            high = fmax(high, mean[c]);
        }
    }
    fprintf(out, "  %s\n", title);
    for (unsigned row = ROWS; row-- > 0;) {
        double floor = low + (high - low) * row / ROWS;
        double middle = low + (high - low) * (row + 0.5) / ROWS;

        fprintf(out, "%8.2f |", low + (high - low) * (row + 1) / ROWS);
        for (size_t c = 0; c < columns; c++) {
            fputs(mean[c] >= middle ? "#" : mean[c] > floor ? "." : " ", out);
        }
        fputc('\n', out);
    }
    fprintf(out, "%8.2f +", low);
    for (size_t c = 0; c < columns; c++) {
        fputc('-', out);
    }
    fprintf(out, " %zu\n", count);
}
