/*
 * inflight.c - the messages that a coprocess holds. Numbers count upwards, so that `n & mask` spreads them well; a
 * number found elsewhere than its own place was pushed there by its elder neighbours. Removing closes the gap, which
 * keeps every chain unbroken without marks for deleted places.
 */
#include "inflight.h"

#include <stdlib.h>

bool inflight_init(inflight *table)
{
    *table = (inflight){.mask = 255};
    table->slots = calloc(table->mask + 1, sizeof(*table->slots));
    return table->slots != NULL;
}

void inflight_clear(inflight *table)
{
    inflight_job *next;
    for (inflight_job *job = table->oldest; job; job = next) {
        next = job->newer;
        free(job);
    }
    for (inflight_job *job = table->spare; job; job = next) {
        next = job->newer;
        free(job);
    }
    free(table->slots);
    *table = (inflight){0};
}

static void place(inflight_job **slots, size_t mask, inflight_job *job)
{
    size_t at = job->n & mask;
    while (slots[at])
        at = (at + 1) & mask;
    slots[at] = job;
}

static bool grow(inflight *table)
{
    size_t mask = table->mask * 2 + 1;
    inflight_job **slots = calloc(mask + 1, sizeof(*slots));
    if (!slots)
        return false;
    for (inflight_job *job = table->oldest; job; job = job->newer)
        place(slots, mask, job);
    free(table->slots);
    table->slots = slots;
    table->mask = mask;
    return true;
}

inflight_job *inflight_add(inflight *table, uint64_t n)
{
    inflight_job *job = table->spare;
    if (table->count * 2 > table->mask && !grow(table))
        return NULL;
    if (job)
        table->spare = job->newer;
    else
        job = malloc(sizeof(*job));
    if (!job)
        return NULL;
    *job = (inflight_job){.n = n, .older = table->newest};
    if (table->newest)
        table->newest->newer = job;
    else
        table->oldest = job;
    table->newest = job;
    table->count++;
    place(table->slots, table->mask, job);
    return job;
}

static size_t find(const inflight *table, uint64_t n)
{
    size_t at = n & table->mask;
    while (table->slots[at] && table->slots[at]->n != n)
        at = (at + 1) & table->mask;
    return at;
}

inflight_job *inflight_find(const inflight *table, uint64_t n)
{
    return table->slots[find(table, n)];
}

static void close_gap(inflight *table, size_t gap)
{
    table->slots[gap] = NULL;
    for (size_t at = (gap + 1) & table->mask; table->slots[at]; at = (at + 1) & table->mask) {
        size_t home = table->slots[at]->n & table->mask;
        /* It may move to the gap unless its home lies between the gap and itself. */
        if (((at - home) & table->mask) < ((at - gap) & table->mask))
            continue;
        table->slots[gap] = table->slots[at];
        table->slots[at] = NULL;
        gap = at;
    }
}

void inflight_remove(inflight *table, inflight_job *job)
{
    close_gap(table, find(table, job->n));
    *(job->older ? &job->older->newer : &table->oldest) = job->newer;
    *(job->newer ? &job->newer->older : &table->newest) = job->older;
    table->count--;
    job->newer = table->spare;
    table->spare = job;
}
