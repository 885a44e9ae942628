/* What timestamp_deltas (records.py) does by columns, for records of any shape: one walk over the records of a batch
 * that is not compressed. It never refuses. What it does not call valid is left to the parser in Python, which says
 * what is wrong; what it calls valid the parser calls valid, with the same timestamps (tests/unit/protocol/records).
 *
 * The broker works without it: see pyproject.toml and bin/.build.py.
 *
 * The bytes come from a producer. Every read is behind a comparison with the end of what it may read: of the batch for
 * a record's length, of the record for all else. CPython's stable ABI of 3.11, which has the buffer protocol. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>

enum { INT_BYTES_MAX = 5, LONG_BYTES_MAX = 10 };

/* Deltas that can be added to any base timestamp that records.py asks about, without leaving 64 bits. */
static const int64_t DELTA_MAX = (int64_t)1 << 61;

struct cursor {
    const uint8_t *at, *end;
};

struct deltas {
    int64_t least, greatest;
    Py_ssize_t index_of_greatest;
};

/* A zigzag varint. 0: it is cut off, too long, or has bits that Java would drop. */
static int read_varint(struct cursor *in, int bytes_max, int64_t *value) {
    uint64_t bits = 0;
    for (int index = 0; index < bytes_max && in->at < in->end; index++) {
        uint8_t byte = *in->at++;
        uint64_t low = byte & 0x7f;
        if (index == LONG_BYTES_MAX - 1 && low > 1)
            return 0;
        bits |= low << 7 * index;
        if (byte < 0x80) {
            if (bytes_max == INT_BYTES_MAX && bits > UINT32_MAX)
                return 0;
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            return 1;
        }
    }
    return 0;
}

/* Passes a length and so many bytes; a negative length stands for null. */
static int pass_nullable(struct cursor *in, int64_t *length) {
    if (!read_varint(in, INT_BYTES_MAX, length) || *length > in->end - in->at)
        return 0;
    if (*length > 0)
        in->at += *length;
    return 1;
}

static int pass_headers(struct cursor *in) {
    int64_t count, length;
    if (!read_varint(in, INT_BYTES_MAX, &count) || count < 0 || count > in->end - in->at)
        return 0;
    for (; count > 0; count--)
        if (!pass_nullable(in, &length) || length < 0 || !pass_nullable(in, &length))
            return 0;
    return 1;
}

/* One record, which has to have this offset delta; `in` ends with the batch. */
static int pass_record(struct cursor *in, int64_t offset_delta, int key_required, int64_t *timestamp_delta) {
    int64_t length, found;
    if (!read_varint(in, INT_BYTES_MAX, &length) || length < 1 || length > in->end - in->at)
        return 0;
    struct cursor record = {in->at + 1, in->at + length}; /* behind the attributes, which have no use */
    in->at = record.end;
    if (!read_varint(&record, LONG_BYTES_MAX, timestamp_delta))
        return 0;
    if (!read_varint(&record, INT_BYTES_MAX, &found) || found != offset_delta)
        return 0;
    if (!pass_nullable(&record, &found) || (key_required && found < 0))
        return 0;
    return pass_nullable(&record, &found) && pass_headers(&record) && record.at == record.end;
}

static int pass_records(struct cursor *in, Py_ssize_t count, int keys_required, struct deltas *deltas) {
    for (Py_ssize_t index = 0; index < count; index++) {
        int64_t delta;
        if (!pass_record(in, index, keys_required, &delta) || delta > DELTA_MAX || delta < -DELTA_MAX)
            return 0;
        if (index == 0 || delta > deltas->greatest) {
            deltas->greatest = delta;
            deltas->index_of_greatest = index;
        }
        if (index == 0 || delta < deltas->least)
            deltas->least = delta;
    }
    return in->at == in->end;
}

PyDoc_STRVAR(scan_doc,
             "scan(plain, start, count, keys_required, /)\n--\n\n"
             "Least and greatest timestamp delta, and the index of the first record with the greatest, of the\n"
             "`count` records that fill `plain` from `start`; None unless they are certainly valid.");

static PyObject *scan(PyObject *module, PyObject *arguments) {
    PyObject *plain;
    Py_ssize_t start, count;
    int keys_required;
    Py_buffer view;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Onnp:scan", &plain, &start, &count, &keys_required) ||
        PyObject_GetBuffer(plain, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    struct deltas deltas = {0, 0, 0};
    int valid = 0;
    if (start >= 0 && start <= view.len && count > 0) {
        const uint8_t *bytes = view.buf;
        struct cursor in = {bytes + start, bytes + view.len};
        valid = pass_records(&in, count, keys_required, &deltas);
    }
    PyBuffer_Release(&view);
    if (!valid)
        Py_RETURN_NONE;
    return Py_BuildValue("LLn", (long long)deltas.least, (long long)deltas.greatest, deltas.index_of_greatest);
}

static PyMethodDef methods[] = {{"scan", scan, METH_VARARGS, scan_doc}, {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "record_scan", "The records of a batch, checked by compiled code.", 0, methods, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_record_scan(void) {
    return PyModuleDef_Init(&definition);
}
