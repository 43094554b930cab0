/* A small NVTX tool for the tests: it writes every range to a file, one line a call, tabs between the fields:
 *     pid  tid  domain  push  name  payload        ("-": no payload)
 *     pid  tid  domain  pop
 * NVTX_TOOL_LOG names the file; without it the tool listens and does nothing, which is what benchmarks/nvtx_ranges.py measures.
 *
 * NVTX loads the library that NVTX_INJECTION64_PATH names and calls InitializeInjectionNvtx2. The few declarations below are the
 * part of NVTX 3's binary interface that is needed (nvtx3/nvToolsExt.h and nvtx3/nvtxDetail/nvtxTypes.h, NVIDIA/NVTX on GitHub).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALLBACKS_TABLE = 1 };
enum { MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum { CORE_RANGE_PUSH_EX = 8, CORE_RANGE_PUSH_A = 9, CORE_RANGE_POP = 11 };
enum { CORE2_RANGE_PUSH_EX = 4, CORE2_RANGE_POP = 5, CORE2_REGISTER_STRING_A = 10, CORE2_CREATE_A = 12 };
enum { MESSAGE_ASCII = 1, MESSAGE_REGISTERED = 3 };
enum { PAYLOAD_INT64 = 2 };

typedef void (*function)(void);
typedef struct {
    size_t size;
    int (*get_module_function_table)(int module, function*** table, unsigned* entries);
} callbacks;
typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    int64_t payload;
    int32_t message_type;
    const char* message; /* for a registered string: what register_string returned, here a copy of the text */
} attributes;

static int log_file = -1;
static __thread int depth;

static void append(const char* domain, const char* rest) {
    char line[512];
    if (log_file < 0) return;
    int length = snprintf(line, sizeof line, "%d\t%ld\t%s\t%s\n", (int)getpid(), (long)syscall(SYS_gettid), domain ? domain : "-", rest);
    if (length > (int)sizeof line - 1) length = sizeof line - 1;
    if (write(log_file, line, (size_t)length) != length) abort();
}

static int push_named(const char* domain, const char* name, const attributes* given) {
    char rest[384], payload[24] = "-";
    if (given && given->payload_type == PAYLOAD_INT64) snprintf(payload, sizeof payload, "%" PRId64, given->payload);
    if (log_file >= 0) {
        snprintf(rest, sizeof rest, "push\t%s\t%s", name, payload);
        append(domain, rest);
    }
    return depth++;
}

static int push(void* domain, const attributes* given) {
    int known = given->message_type == MESSAGE_ASCII || given->message_type == MESSAGE_REGISTERED;
    return push_named(domain, known && given->message ? given->message : "?", given);
}

static int pop(void* domain) {
    append(domain, "pop");
    return --depth;
}

static int push_default(const attributes* given) { return push(NULL, given); }
static int push_default_text(const char* name) { return push_named(NULL, name, NULL); }
static int pop_default(void) { return pop(NULL); }
static void* create_domain(const char* name) { return strdup(name); }
static void* register_string(void* domain, const char* text) {
    (void)domain;
    return strdup(text);
}

static int install(const callbacks* table, int module, unsigned id, function replacement) {
    function** slots;
    unsigned entries;
    if (!table->get_module_function_table(module, &slots, &entries) || id >= entries) return 0;
    *slots[id] = replacement;
    return 1;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void* (*get_export_table)(uint32_t)) {
    const callbacks* table = get_export_table(CALLBACKS_TABLE);
    const char* path = getenv("NVTX_TOOL_LOG");
    if (!table || table->size < sizeof *table) return 0;
    if (path && (log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0) return 0;
    return install(table, MODULE_CORE2, CORE2_CREATE_A, (function)create_domain) &&
           install(table, MODULE_CORE2, CORE2_REGISTER_STRING_A, (function)register_string) &&
           install(table, MODULE_CORE2, CORE2_RANGE_PUSH_EX, (function)push) &&
           install(table, MODULE_CORE2, CORE2_RANGE_POP, (function)pop) &&
           install(table, MODULE_CORE, CORE_RANGE_PUSH_EX, (function)push_default) &&
           install(table, MODULE_CORE, CORE_RANGE_PUSH_A, (function)push_default_text) &&
           install(table, MODULE_CORE, CORE_RANGE_POP, (function)pop_default);
}
