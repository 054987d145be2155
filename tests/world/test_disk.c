/* SPDX-License-Identifier: Apache-2.0 */
/* The disk of a world: what is acknowledged survives crashes and errors, both for the store and for
 * SQLite alone, and a disk that lies is found out. */
#include "test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/clock.h"
#include "base/wait.h"
#include "http/loop.h"
#include "server/store/sqlite_internal.h"
#include "server/store/store.h"
#include "world/disk.h"
#include "world/world.h"

#define STORE "world:disk/harpe.db"

enum {
    KEYS = 8,
    LIVES = 4,
    STARTS = 6,           /* most starts in a life of start_often */
    CHANGES_A_START = 60, /* most changes after such a start */
    MOST_CHANGES = (LIVES - 1) * STARTS * CHANGES_A_START,
    LONGEST = 9000, /* bytes of a note */
    SECOND = 1000000000,
};

/* ---- A trial: servers that use one disk, one after another ----------------------------------- */

typedef struct note {
    harpe_change change;
    char key[8];
    char *text;
} note;

typedef struct trial {
    uint64_t seed;
    harpe_disk_faults faults;
    bool crashes_at_writes; /* the machine fails at any write; otherwise when a server has ended */
    void (*run)(struct trial *self);
    harpe_disk *disk;
    harpe_loop *loop;
    harpe_store *store;
    note changes[MOST_CHANGES]; /* change i writes its number, from 1, into its key */
    int submitted, acknowledged, failed;
    size_t left;
    int is_at_least[KEYS]; /* the last number of this key that was acknowledged or read */
    int found[KEYS];
    int stopped_writing; /* lives in which a write failed */
    char violation[400]; /* "": none */
    bool wants_digest;
    uint64_t digest;
    harpe_disk_counts counts;
} trial;

static int key_of(const trial *self, int number) { return self->changes[number - 1].key[1] - '0'; }

static size_t length_of(int number) { return 12 + (size_t)(number * 7919 % LONGEST); }

static void fill(char *text, int number) {
    memset(text, 'a' + number % 26, length_of(number));
    (void)snprintf(text, 12, "%d", number);
}

static void violate(trial *self, const char *what, int a, int b) {
    if (self->violation[0]) return;
    (void)snprintf(self->violation, sizeof self->violation, "seed %llu: %.300s (%d, %d)",
                   (unsigned long long)self->seed, what, a, b);
}

static void acknowledge(void *user, harpe_status status, const harpe_error *error) {
    trial *self = user;
    (void)error;
    /* The changes are acknowledged in their order. */
    int number = self->submitted - (int)self->left + 1;
    if (status == HARPE_OK)
        self->is_at_least[key_of(self, number)] = number;
    else
        self->failed++;
    self->acknowledged += status == HARPE_OK;
    if (--self->left == 0) harpe_loop_stop(self->loop);
}

static void submit_some(trial *self, int count) {
    self->left = (size_t)count;
    self->submitted += count;
    assert_in_range(self->submitted, 1, MOST_CHANGES);
    for (int number = self->submitted - count + 1; number <= self->submitted; number++) {
        note *one = &self->changes[number - 1];
        one->text = malloc(length_of(number) + 1);
        fill(one->text, number);
        (void)snprintf(one->key, sizeof one->key, "k%d", (int)harpe_world_draw(KEYS));
        one->change = (harpe_change){.kind = HARPE_CHANGE_NOTE,
                                     .job_id = one->key,
                                     .text = one->text,
                                     .length = length_of(number),
                                     .done = acknowledge,
                                     .user = self};
        harpe_store_submit(self->store, &one->change);
    }
    (void)harpe_loop_run(self->loop, NULL);
}

static harpe_status note_found(void *user, const harpe_change *change, harpe_error *error) {
    trial *self = user;
    char expected[LONGEST + 16];
    (void)error;
    int number = atoi(change->text);
    if (number < 1 || number > self->submitted || change->length != length_of(number)) {
        violate(self, "a note is damaged", number, (int)change->length);
        return HARPE_OK;
    }
    fill(expected, number);
    if (memcmp(expected, change->text, change->length) != 0 ||
        strcmp(change->job_id, self->changes[number - 1].key) != 0)
        violate(self, "a note is damaged", number, 0);
    self->found[key_of(self, number)] = number;
    return HARPE_OK;
}

static bool has_power(const trial *self, uint64_t last_write) {
    return last_write == 0 || harpe_disk_count(self->disk).writes < last_write;
}

/* Checks the notes of a store that was just opened. */
static void check_notes(trial *self, uint64_t last_write) {
    int last = 0;
    memset(self->found, 0, sizeof self->found);
    if (harpe_store_load_notes(self->store, note_found, self, &failure) != HARPE_OK) {
        if (has_power(self, last_write)) violate(self, failure.message, 0, 0);
        return;
    }
    for (int k = 0; k < KEYS; k++) {
        if (self->found[k] < self->is_at_least[k])
            violate(self, "an acknowledged note is lost", self->is_at_least[k], self->found[k]);
        if (self->found[k] > last) last = self->found[k];
    }
    /* After a change that is there, no earlier change of a batch that failed may be missing. */
    for (int number = 1; self->crashes_at_writes && number <= last; number++)
        if (self->changes[number - 1].change.kind == HARPE_CHANGE_NOTE &&
            self->found[key_of(self, number)] < number)
            violate(self, "a change is there without one before it", last, number);
    for (int number = last + 1; number <= self->submitted; number++)
        self->changes[number - 1].change.kind = HARPE_CHANGE_SEEN; /* it does not exist any more */
    memcpy(self->is_at_least, self->found, sizeof self->found);
}

static void ignore_line(void *user, harpe_log_level level, const char *line) {
    (void)user;
    (void)level;
    (void)line;
}

static harpe_status open_store(trial *self, harpe_error *error) {
    return harpe_store_open(STORE, self->loop, (harpe_log){ignore_line, NULL}, &self->store, error);
}

/* One server, from its start to its end. */
static void live(trial *self, bool is_last) {
    static const harpe_disk_faults none;
    harpe_disk_faults faults = is_last ? none : self->faults;
    if (self->crashes_at_writes && !is_last)
        faults.last_write = harpe_disk_count(self->disk).writes + 1 + harpe_world_draw(80);
    harpe_disk_set_faults(self->disk, &faults);
    int failed = self->failed;
    self->store = NULL;
    if (open_store(self, &failure) == HARPE_OK) {
        check_notes(self, faults.last_write);
        for (int i = 0; i < 8 && !is_last; i++) {
            if (self->crashes_at_writes && self->failed > failed) break;
            submit_some(self, 1 + (int)harpe_world_draw(8));
        }
    } else if (is_last || (has_power(self, faults.last_write) && !faults.write_errors_ppm &&
                           !faults.sync_errors_ppm && !faults.room_bytes)) {
        violate(self, failure.message, 0, 0);
    }
    self->stopped_writing += self->failed > failed;
    harpe_store_close(self->store);
    harpe_disk_crash(self->disk);
}

static int check_row(void *user, int count, char **values, char **names) {
    (void)count;
    (void)names;
    if (strcmp(values[0], "ok") != 0) violate(user, values[0], 0, 0);
    return 0;
}

/* Runs PRAGMA integrity_check. */
static void check_integrity(trial *self, const char *path) {
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, "world:disk") != SQLITE_OK ||
        sqlite3_exec(db, "PRAGMA integrity_check", check_row, self, NULL) != SQLITE_OK)
        violate(self, sqlite3_errmsg(db), 0, 0);
    (void)sqlite3_close(db);
}

static void live_often(trial *self) {
    for (int i = 0; i < LIVES; i++)
        live(self, i == LIVES - 1);
    check_integrity(self, STORE);
}

static void run_inside(void *user) {
    trial *self = user;
    if (harpe_loop_new(&self->loop, NULL) == HARPE_OK) self->run(self);
    harpe_loop_free(self->loop);
}

static void run_trial(trial *self) {
    harpe_world_options options = {.seed = self->seed,
                                   .shuffles = self->seed % 2,
                                   .wall_ns = INT64_C(1700000000) * SECOND,
                                   .longest_ns = INT64_C(100000) * SECOND,
                                   .most_turns = 1000000};
    self->disk = harpe_disk_new("disk", self->seed);
    assert_non_null(self->disk);
    if (!self->run) self->run = live_often;
    if (harpe_world_run(&options, run_inside, self, &failure) != HARPE_OK)
        fail_msg("seed %llu: %s", (unsigned long long)self->seed, failure.message);
    if (self->wants_digest) self->digest = harpe_disk_digest(self->disk);
    self->counts = harpe_disk_count(self->disk);
    harpe_disk_free(self->disk);
    for (int i = 0; i < self->submitted; i++)
        free(self->changes[i].text);
}

/* Runs a trial without a violation. Returns the number of acknowledged changes. */
static int run_well(uint64_t seed, void (*run)(trial *self)) {
    static trial self;
    self = (trial){.seed = seed, .run = run};
    run_trial(&self);
    assert_string_equal(self.violation, "");
    return self.acknowledged;
}

/* Runs trials of all seeds, and returns the number of those with a violation. */
static int run_trials(const trial *one, int count, trial *sums) {
    static trial self;
    int violations = 0;
    *sums = (trial){0};
    for (int i = 0; i < count; i++) {
        self = *one;
        self.seed = (uint64_t)i + 1;
        run_trial(&self);
        violations += self.violation[0] != '\0';
        if (!sums->violation[0]) memcpy(sums->violation, self.violation, sizeof sums->violation);
        sums->acknowledged += self.acknowledged;
        sums->failed += self.failed;
        sums->stopped_writing += self.stopped_writing;
    }
    return violations;
}

static trial sums;

/* Runs trials, none of which may have a violation. */
static void expect_nothing_lost(const trial *one, int count) {
    if (run_trials(one, count, &sums) > 0) fail_msg("%s", sums.violation);
    print_message("%d changes acknowledged, %d not; %d servers with a failed write\n",
                  sums.acknowledged, sums.failed, sums.stopped_writing);
    assert_true(sums.acknowledged > count);
    assert_true(sums.failed > count / 4);
}

/* ---- The store ------------------------------------------------------------------------------- */

TEST(acknowledged_changes_survive_crashes) {
    expect_nothing_lost(&(trial){.crashes_at_writes = true}, few_trials(500));
}

TEST(acknowledged_changes_survive_write_errors) {
    expect_nothing_lost(&(trial){.faults = {.write_errors_ppm = 10000}}, few_trials(150));
}

TEST(acknowledged_changes_survive_sync_errors) {
    expect_nothing_lost(&(trial){.faults = {.sync_errors_ppm = 100000}}, few_trials(150));
}

TEST(acknowledged_changes_survive_a_full_disk) {
    expect_nothing_lost(&(trial){.faults = {.room_bytes = 400000}}, few_trials(150));
}

TEST(a_disk_that_ignores_syncs_is_found_out) {
    trial lies = {.crashes_at_writes = true, .faults = {.ignores_syncs = true}};
    int count = few_trials(150);
    int violations = run_trials(&lies, count, &sums);
    print_message("%d of %d: %s\n", violations, count, sums.violation);
    assert_true(violations > count / 4);
}

TEST(the_same_seed_gives_the_same_bytes) {
    static trial first, second;
    uint64_t other = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        first = (trial){.seed = seed,
                        .crashes_at_writes = true,
                        .faults.write_errors_ppm = 1000,
                        .wants_digest = true};
        second = first;
        run_trial(&first);
        run_trial(&second);
        assert_int_equal(first.digest, second.digest);
        assert_memory_equal(&first.counts, &second.counts, sizeof first.counts);
        assert_int_equal(first.acknowledged, second.acknowledged);
        assert_true(first.digest != other);
        other = first.digest;
    }
}

static void fill_the_disk(trial *self) {
    harpe_disk_faults faults = {.room_bytes = 300000};
    char line[400] = "";
    harpe_disk_set_faults(self->disk, &faults);
    if (open_store(self, &failure) != HARPE_OK) violate(self, failure.message, 0, 0);
    while (self->failed == 0 && self->submitted < MOST_CHANGES - 10)
        submit_some(self, 5);
    if (!harpe_store_fault(self->store, 60, line, sizeof line) || !strstr(line, "is full"))
        violate(self, line, 1, 0);
    if (harpe_store_count(self->store).free_bytes > 100000) violate(self, "free bytes", 0, 0);
    faults.room_bytes = 10000000;
    harpe_disk_set_faults(self->disk, &faults);
    int failed = self->failed;
    submit_some(self, 5);
    if (self->failed > failed) violate(self, "the disk is not full any more", 0, 0);
    if (harpe_store_fault(self->store, 60, line, sizeof line)) violate(self, line, 2, 0);
    harpe_store_close(self->store);
}

TEST(a_full_disk_may_get_room) { (void)run_well(2, fill_the_disk); }

/* ---- Time, processes, backups ---------------------------------------------------------------- */

static void write_slowly(trial *self) {
    harpe_disk_faults slow = {.write_ns = 3000000, .sync_ns = 50000000};
    if (open_store(self, &failure) != HARPE_OK) violate(self, failure.message, 0, 0);
    harpe_disk_counts before = harpe_disk_count(self->disk);
    int64_t begin_ns = harpe_clock_ns();
    harpe_disk_set_faults(self->disk, &slow);
    submit_some(self, 5);
    int64_t took_ns = harpe_clock_ns() - begin_ns;
    harpe_disk_counts after = harpe_disk_count(self->disk);
    int64_t expected_ns = (int64_t)(after.writes - before.writes) * slow.write_ns +
                          (int64_t)(after.syncs - before.syncs) * slow.sync_ns;
    if (after.syncs == before.syncs || took_ns != expected_ns)
        violate(self, "it took another time", (int)took_ns, (int)expected_ns);
    harpe_store_close(self->store);
}

TEST(slow_writes_take_virtual_time) { (void)run_well(4, write_slowly); }

/* A server that writes until it is killed. */

static int serve(void *user) {
    trial *self = user;
    self->loop = NULL;
    if (harpe_loop_new(&self->loop, NULL) != HARPE_OK || open_store(self, &failure) != HARPE_OK) {
        violate(self, failure.message, 0, 0);
        return 1;
    }
    check_notes(self, 0);
    while (self->submitted < MOST_CHANGES - 8)
        submit_some(self, 1 + (int)harpe_world_draw(8));
    return 0;
}

static void kill_servers(trial *self) {
    harpe_disk_faults slow = {.write_ns = 100000, .sync_ns = 2000000};
    harpe_loop *own = self->loop;
    harpe_store *other = NULL;
    harpe_disk_set_faults(self->disk, &slow);
    for (int i = 0; i < LIVES; i++) {
        /* What the killed server has submitted may still be in use when the next one begins. */
        pid_t server = harpe_world_start("server", serve, self);
        harpe_sleep_ns((int64_t)(1 + harpe_world_draw(300)) * 1000000);
        bool is_open = self->store != NULL;
        if (is_open && harpe_store_open(STORE, own, (harpe_log){ignore_line, NULL}, &other,
                                        &failure) != HARPE_ALREADY_EXISTS)
            violate(self, "two servers have the store open", i, (int)failure.status);
        harpe_world_kill(server);
        if (harpe_world_draw(2) == 0)
            harpe_disk_crash(self->disk);
        else
            harpe_disk_abandon(self->disk, server);
        self->store = NULL;
    }
    self->loop = own;
    live(self, true);
    check_integrity(self, STORE);
}

TEST(a_killed_server_gives_its_files_free) {
    int count = few_trials(100), acknowledged = 0;
    for (int i = 0; i < count; i++)
        acknowledged += run_well((uint64_t)i + 1, kill_servers);
    assert_true(acknowledged > count);
}

/* A server starts several times while syncs fail, and then the machine loses its power. The file
 * itself is made before: one whose making failed may be damaged, but holds nothing. */
static void start_often(trial *self) {
    harpe_disk_faults faults = {0};
    live(self, true);
    for (int life = 0; life < LIVES - 1; life++) {
        faults.sync_errors_ppm = (uint32_t)harpe_world_draw(500000);
        harpe_disk_set_faults(self->disk, &faults);
        for (uint64_t starts = 1 + harpe_world_draw(STARTS); starts > 0; starts--) {
            self->store = NULL;
            if (open_store(self, &failure) == HARPE_OK)
                submit_some(self, 1 + (int)harpe_world_draw(CHANGES_A_START));
            harpe_store_close(self->store);
        }
        harpe_disk_crash(self->disk);
    }
    live(self, true);
    check_integrity(self, STORE);
}

/* Seed 501519 of `world` found a store that refused to start: it had noted commits whose sync had
 * failed as commits that are durable. */
TEST(a_store_starts_after_starts_that_failed) {
    const trial one = {.run = start_often};
    expect_nothing_lost(&one, few_trials(300));
    assert_true(sums.acknowledged > 0);
}

static int count_notes(int file) {
    struct stat info;
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    int count = -1;
    if (fstat(file, &info) != 0) return -1;
    unsigned char *bytes = sqlite3_malloc64((sqlite3_uint64)info.st_size);
    if (!bytes || pread(file, bytes, (size_t)info.st_size, 0) != info.st_size) return -1;
    if (sqlite3_open(":memory:", &db) == SQLITE_OK &&
        sqlite3_deserialize(db, "main", bytes, info.st_size, info.st_size,
                            SQLITE_DESERIALIZE_FREEONCLOSE) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "SELECT count(*) FROM notes", -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
        count = sqlite3_column_int(statement, 0);
    (void)sqlite3_finalize(statement);
    (void)sqlite3_close(db);
    return count;
}

static void make_backup(trial *self) {
    int file = -1;
    if (open_store(self, &failure) != HARPE_OK) violate(self, failure.message, 0, 0);
    while (self->submitted < 100)
        submit_some(self, 10);
    if (harpe_store_control_ask(STORE ".control", 60, &file, &failure) != HARPE_OK)
        violate(self, failure.message, 0, 0);
    else if (count_notes(file) != KEYS)
        violate(self, "the backup has another number of notes", count_notes(file), KEYS);
    if (file >= 0) (void)close(file);
    harpe_store_close(self->store);
}

TEST(a_backup_can_be_made) { (void)run_well(5, make_backup); }

/* ---- SQLite alone, in all modes of its journal ----------------------------------------------- */

typedef struct plain_trial {
    const char *setup;
    harpe_disk *disk;
    uint64_t random;
    sqlite3 *writer, *reader;
    int committed;
    trial outcome;
} plain_trial;

enum { CELLS = 30, PICKED = 3, COMMITS = 12 };

static uint64_t draw(plain_trial *self, uint64_t count) {
    self->random = self->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (self->random >> 33) % count;
}

/* Transaction `number` writes its number into these cells. */
static int picked_cell(int number, int i) { return (number * 17 + i * (number % 7 + 1)) % CELLS; }

static int expected_cell(int cell, int committed) {
    for (int number = committed; number > 0; number--)
        for (int i = 0; i < PICKED; i++)
            if (picked_cell(number, i) == cell) return number;
    return 0;
}

static sqlite3 *connect_plain(const plain_trial *self) {
    sqlite3 *db = NULL;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    if (sqlite3_open_v2("world:disk/plain.db", &db, flags, "world:disk") == SQLITE_OK)
        (void)sqlite3_exec(db, self->setup, NULL, NULL, NULL);
    return db;
}

static bool commit_plain(const plain_trial *self, int number) {
    char sql[200];
    bool is_ok = sqlite3_exec(self->writer, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK;
    for (int i = 0; i < PICKED && is_ok; i++) {
        (void)snprintf(sql, sizeof sql, "REPLACE INTO cells VALUES (%d, %d, zeroblob(%d))",
                       picked_cell(number, i), number, number * 977 % 5000);
        is_ok = sqlite3_exec(self->writer, sql, NULL, NULL, NULL) == SQLITE_OK;
    }
    is_ok = is_ok && sqlite3_exec(self->writer, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
    if (!is_ok) (void)sqlite3_exec(self->writer, "ROLLBACK", NULL, NULL, NULL);
    return is_ok;
}

/* Returns the number of the last transaction that a connection sees, or -1. */
static int last_plain(plain_trial *self, sqlite3 *db) {
    sqlite3_stmt *statement = NULL;
    int cells[CELLS] = {0}, last = 0;
    if (sqlite3_prepare_v2(db, "SELECT cell, number FROM cells", -1, &statement, NULL) != SQLITE_OK)
        return -1;
    int result;
    while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
        int number = sqlite3_column_int(statement, 1);
        cells[sqlite3_column_int(statement, 0) % CELLS] = number;
        if (number > last) last = number;
    }
    (void)sqlite3_finalize(statement);
    for (int cell = 0; cell < CELLS && result == SQLITE_DONE; cell++)
        if (cells[cell] != expected_cell(cell, last))
            violate(&self->outcome, "a transaction is there in part", last, cell);
    return result == SQLITE_DONE ? last : -1;
}

/* Two connections, until the machine fails at a write. */
static void live_plain(plain_trial *self) {
    harpe_disk_faults faults = {.last_write =
                                    harpe_disk_count(self->disk).writes + 1 + draw(self, 60)};
    self->writer = connect_plain(self);
    self->reader = connect_plain(self);
    int last = last_plain(self, self->reader);
    /* The transaction that was being written may be there. */
    if (last < self->committed || last > self->committed + 1)
        violate(&self->outcome, "a transaction is lost", self->committed, last);
    self->committed = last < 0 ? 0 : last;
    harpe_disk_set_faults(self->disk, &faults);
    for (int i = 0; i < COMMITS; i++) {
        if (!commit_plain(self, self->committed + 1)) break;
        self->committed++;
        if (draw(self, 3) > 0) continue;
        last = last_plain(self, self->reader);
        if (last >= 0 && last != self->committed)
            violate(&self->outcome, "a reader sees another state", self->committed, last);
    }
    faults.last_write = 1;
    harpe_disk_set_faults(self->disk, &faults);
    (void)sqlite3_close(self->reader);
    (void)sqlite3_close(self->writer);
    harpe_disk_crash(self->disk);
}

static int run_plain_trials(const char *setup, int count, char *violation, size_t size) {
    int violations = 0;
    for (int i = 0; i < count; i++) {
        owned_array plain_trial *self = calloc(1, sizeof *self);
        assert_non_null(self);
        self->setup = setup;
        self->random = self->outcome.seed = (uint64_t)i + 1;
        self->disk = self->outcome.disk = harpe_disk_new("disk", self->random);
        assert_non_null(self->disk);
        sqlite3 *db = connect_plain(self);
        assert_int_equal(sqlite3_exec(db,
                                      "CREATE TABLE cells (cell INTEGER PRIMARY KEY, number, rest)",
                                      NULL, NULL, NULL),
                         SQLITE_OK);
        (void)sqlite3_close(db);
        for (int life = 0; life < 5; life++) {
            live_plain(self);
            check_integrity(&self->outcome, "world:disk/plain.db");
        }
        if (self->outcome.violation[0] && violations++ == 0)
            (void)snprintf(violation, size, "%s", self->outcome.violation);
        harpe_disk_free(self->disk);
    }
    return violations;
}

#define SETUP(mode, synchronous) \
    "PRAGMA page_size = 1024; PRAGMA cache_size = 5; PRAGMA journal_mode = " mode \
    "; PRAGMA synchronous = " synchronous "; PRAGMA wal_autocheckpoint = 6"

TEST(sqlite_survives_crashes_in_every_mode) {
    static const char *const setups[] = {
        SETUP("WAL", "FULL"),
        SETUP("DELETE", "EXTRA"),
        SETUP("TRUNCATE", "FULL"),
        SETUP("PERSIST", "FULL"),
    };
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        char violation[400] = "";
        if (run_plain_trials(setups[i], few_trials(150), violation, sizeof violation) > 0)
            fail_msg("%s: %s", setups[i], violation);
    }
}

/* SQLite's manual says what its settings do not promise: NORMAL does not sync the log at a commit,
 * and FULL does not sync the directory from which the journal was removed. */
TEST(a_disk_keeps_only_what_was_synced) {
    static const char *const setups[] = {SETUP("WAL", "NORMAL"), SETUP("DELETE", "FULL"),
                                         SETUP("DELETE", "OFF")};
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        char violation[400] = "";
        int count = few_trials(150);
        int violations = run_plain_trials(setups[i], count, violation, sizeof violation);
        print_message("%d of %d: %s\n", violations, count, violation);
        assert_true(violations > 0);
    }
}
