#include "report/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- text ----------------------------------------------------------------------------------- */

/* `digits` that count, without zeros at the end of a fraction. */
static void put_digits(char out[WEFT_NUMBER_TEXT], double value, int digits)
{
    double size = fabs(value);
    if (size == 0 || size >= 1e7 || size < 1e-4) {
        snprintf(out, WEFT_NUMBER_TEXT, "%.*g", digits, value);
        return;
    }
    int before = (int)floor(log10(size)) + 1;
    int decimals = digits > before ? digits - before : 0;
    snprintf(out, WEFT_NUMBER_TEXT, "%.*f", decimals, value);
    char *point = strchr(out, '.');
    char *end = out + strlen(out);
    while (point != NULL && (end[-1] == '0' || end[-1] == '.')) {
        *--end = '\0';
        if (end == point) {
            break;
        }
    }
}

/* value / unit^n and which n, below `most`. */
static int scale_down(double *value, double unit, int most)
{
    int n = 0;
    while (fabs(*value) >= unit && n < most) {
        *value /= unit;
        n++;
    }
    return n;
}

static const char *const si_units[] = {"", "k", "M", "G", "T", "P"};
static const char *const byte_units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};

const char *weft__number_text(char out[WEFT_NUMBER_TEXT], double value, weft_number_format_t format)
{
    const char *unit = "";
    if (!isfinite(value) || (format == WEFT_NUMBER_PERCENT && !isfinite(value * 100))) {
        snprintf(out, WEFT_NUMBER_TEXT, "-");
        return out;
    }
    if (format == WEFT_NUMBER_SI) {
        unit = si_units[scale_down(&value, 1000, 5)];
    } else if (format == WEFT_NUMBER_BYTES) {
        unit = byte_units[scale_down(&value, 1024, 5)];
    } else if (format == WEFT_NUMBER_PERCENT) {
        value *= 100;
        unit = "%";
    }
    put_digits(out, value, format == WEFT_NUMBER_PERCENT ? 3 : 4);
    size_t length = strlen(out);
    snprintf(out + length, WEFT_NUMBER_TEXT - length, "%s", unit);
    return out;
}

/* ---- axes ----------------------------------------------------------------------------------- */

bool weft__axis_shows(const weft_axis_t *axis, double value)
{
    /* Beyond these, differences of two values are not finite. */
    return axis->scale == WEFT_AXIS_LINEAR ? fabs(value) < 1e300 : value > 1e-300 && value < 1e300;
}

void weft__axis_fit(weft_axis_t *axis, const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!weft__axis_shows(axis, values[i])) {
            continue;
        }
        axis->least = axis->fitted && axis->least < values[i] ? axis->least : values[i];
        axis->most = axis->fitted && axis->most > values[i] ? axis->most : values[i];
        axis->fitted = true;
    }
}

/* The smallest of 1, 2, 5 times a power of ten that is not below `rough`. */
static double nice_step(double rough)
{
    double power = pow(10, floor(log10(rough)));
    double times = rough / power;
    return (times <= 1.0001 ? 1 : times <= 2.0001 ? 2 : times <= 5.0001 ? 5 : 10) * power;
}

static void ready_linear(weft_axis_t *axis, int wanted)
{
    bool linear = axis->scale == WEFT_AXIS_LINEAR, from_zero = linear && axis->from_zero;
    if (from_zero) {
        axis->least = axis->least < 0 ? axis->least : 0;
        axis->most = axis->most > 0 ? axis->most : 0;
    }
    double size = fmax(fabs(axis->least), fabs(axis->most));
    /* Steps between values this small would be 0: they count as 0. */
    bool none = linear && size < 1e-290;
    if (none || axis->most - axis->least <= 1e-9 * size) { /* one value: some room on both sides */
        double room = none ? 1 : 0.1 * size;
        axis->least -= from_zero && axis->least >= 0 ? 0 : room;
        axis->most += room;
    }
    double rough = (axis->most - axis->least) / wanted;
    axis->step = axis->format == WEFT_NUMBER_BYTES ? exp2(ceil(log2(rough) - 1e-4))
                                                   : nice_step(rough);
    if (axis->whole && axis->step < 1) {
        axis->step = 1;
    }
    double first = floor(axis->least / axis->step + 1e-6);
    double last = ceil(axis->most / axis->step - 1e-6);
    axis->least = first * axis->step;
    axis->most = last * axis->step;
    axis->count = 0;
    for (double n = first; n <= last && axis->count < WEFT_TICKS_MOST; n++) {
        axis->ticks[axis->count++] = n * axis->step;
    }
}

/* Ticks at powers of `base`, every so many of them that there are not too many. */
static void ready_powers(weft_axis_t *axis, double base, int wanted)
{
    double first = floor(log(axis->least) / log(base) + 1e-9);
    double last = ceil(log(axis->most) / log(base) - 1e-9);
    last = last > first ? last : first + 1;
    double stride = ceil((last - first + 1) / wanted);
    axis->least = pow(base, first);
    axis->most = pow(base, last);
    axis->count = 0;
    for (double n = first; n <= last && axis->count < WEFT_TICKS_MOST; n += stride) {
        axis->ticks[axis->count++] = pow(base, n);
    }
}

/* Less than two decades: ticks at 1, 2, 5 times powers of ten, and the ends at such ticks. */
static void ready_narrow(weft_axis_t *axis)
{
    static const double times[] = {1, 2, 5};
    double low = axis->least, high = axis->most;
    double power = pow(10, floor(log10(low)));
    axis->count = 0;
    for (int i = 0; axis->count < WEFT_TICKS_MOST; i++) {
        double tick = times[i % 3] * power * pow(10, i / 3);
        double next = times[(i + 1) % 3] * power * pow(10, (i + 1) / 3);
        if (next > low * 1.0001) {
            axis->ticks[axis->count++] = tick;
        }
        if (axis->count > 1 && tick >= high * 0.9999) {
            break;
        }
    }
    axis->least = axis->ticks[0];
    axis->most = axis->ticks[axis->count - 1];
}

void weft__axis_ready(weft_axis_t *axis, int wanted)
{
    wanted = wanted < 2 ? 2 : wanted > WEFT_TICKS_MOST - 4 ? WEFT_TICKS_MOST - 4 : wanted;
    if (!axis->fitted) {
        axis->least = axis->scale == WEFT_AXIS_LINEAR ? 0 : 1;
        axis->most = axis->scale == WEFT_AXIS_LINEAR ? 1 : 10;
        axis->fitted = true;
    }
    if (axis->scale == WEFT_AXIS_LINEAR) {
        ready_linear(axis, wanted);
    } else if (axis->scale == WEFT_AXIS_LOG2) {
        ready_powers(axis, 2, wanted);
    } else if (axis->most / axis->least < 3) { /* even steps, so small that none is at 0 */
        ready_linear(axis, wanted < 6 ? 6 : wanted);
    } else if (axis->most / axis->least < 100) {
        ready_narrow(axis);
    } else {
        ready_powers(axis, 10, wanted);
    }
}

double weft__axis_at(const weft_axis_t *axis, double value)
{
    if (!(value > axis->least)) { /* NaN too */
        return 0;
    }
    if (value >= axis->most) {
        return 1;
    }
    if (axis->scale == WEFT_AXIS_LINEAR) {
        return (value - axis->least) / (axis->most - axis->least);
    }
    /* Logarithms are subtracted: a quotient of such values may be more than a double holds. */
    double first = log(axis->least);
    return (log(value) - first) / (log(axis->most) - first);
}

const char *weft__axis_text(const weft_axis_t *axis, int tick, char out[WEFT_NUMBER_TEXT])
{
    double value = axis->ticks[tick];
    bool percent = axis->format == WEFT_NUMBER_PERCENT;
    bool even = axis->scale == WEFT_AXIS_LINEAR;
    if (!even || axis->format == WEFT_NUMBER_SI || axis->format == WEFT_NUMBER_BYTES) {
        return weft__number_text(out, value, axis->format);
    }
    double size = fmax(fabs(axis->least), fabs(axis->most));
    if (percent && size >= 1e5) { /* too many digits to write out */
        return weft__number_text(out, value, axis->format);
    }
    bool power = !percent && (size >= 1e6 || size < 1e-2);
    int exponent = power ? (int)floor(log10(size) + 1e-9) : percent ? -2 : 0;
    double unit = pow(10, exponent), step = axis->step / unit;
    int decimals = step < 0.9999 ? (int)ceil(-log10(step) - 1e-4) : 0;
    decimals = decimals > 9 ? 9 : decimals;
    bool zero = fabs(value) < axis->step / 2; /* no -0.0 */
    int length = snprintf(out, WEFT_NUMBER_TEXT, "%.*f", power && zero ? 0 : decimals,
                          zero ? 0 : value / unit);
    if (percent) {
        snprintf(out + length, WEFT_NUMBER_TEXT - (size_t)length, "%%");
    } else if (power && !zero) { /* all of them with one exponent */
        snprintf(out + length, WEFT_NUMBER_TEXT - (size_t)length, "e%d", exponent);
    }
    return out;
}
