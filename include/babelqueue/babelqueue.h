/* babelqueue/babelqueue.h - everything a program needs. Drivers include babelqueue/transport.h as well. */
#ifndef BABELQUEUE_BABELQUEUE_H
#define BABELQUEUE_BABELQUEUE_H

#include <babelqueue/binding.h>
#include <babelqueue/bullmq.h>
#include <babelqueue/consumer.h>
#include <babelqueue/envelope.h>
#include <babelqueue/json.h>
#include <babelqueue/publisher.h>
#include <babelqueue/redrive.h>
#include <babelqueue/types.h>

#endif
