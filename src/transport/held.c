/* transport/held.c - see held.h. */
#include "transport/held.h"

void bq_held_add(bq_held_list *list, bq_held *held)
{
    held->next = NULL;
    held->prev = list->tail;
    if (list->tail)
        list->tail->next = held;
    else
        list->head = held;
    list->tail = held;
    list->count++;
}

void bq_held_add_front(bq_held_list *list, bq_held *held)
{
    held->prev = NULL;
    held->next = list->head;
    if (list->head)
        list->head->prev = held;
    else
        list->tail = held;
    list->head = held;
    list->count++;
}

void bq_held_remove(bq_held_list *list, bq_held *held)
{
    if (held->prev)
        held->prev->next = held->next;
    else
        list->head = held->next;
    if (held->next)
        held->next->prev = held->prev;
    else
        list->tail = held->prev;
    held->prev = held->next = NULL;
    list->count--;
}

bq_held *bq_held_pop(bq_held_list *list)
{
    bq_held *first = list->head;
    if (first)
        bq_held_remove(list, first);
    return first;
}

bool bq_held_reaped(bq_held *held)
{
    return --held->ops == 0 && held->settled;
}

bool bq_held_let_go(bq_held_list *list, bq_held *held)
{
    if (!held->detached) {
        bq_held_remove(list, held);
        held->detached = true;
    }
    return !held->in.keep || held->forgotten;
}

bool bq_held_forget(bq_held *held)
{
    held->forgotten = held->settled = true;
    return held->ops == 0;
}
