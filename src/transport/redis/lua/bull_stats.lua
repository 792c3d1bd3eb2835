-- KEYS[1]: the queue's keys begin with it; KEYS[2]: those of its dead-letter queue
-- Reply {waiting, paused, prioritized, delayed, active, failed, completed, waiting for children, dead letters}
local dead = KEYS[2]
return {
    call('LLEN', base .. 'wait'), call('LLEN', base .. 'paused'), call('ZCARD', base .. 'prioritized'),
    call('ZCARD', base .. 'delayed'), call('LLEN', base .. 'active'), call('ZCARD', base .. 'failed'),
    call('ZCARD', base .. 'completed'), call('ZCARD', base .. 'waiting-children'),
    call('LLEN', dead .. 'wait') + call('LLEN', dead .. 'paused') + call('ZCARD', dead .. 'prioritized')
        + call('ZCARD', dead .. 'delayed') + call('LLEN', dead .. 'active'),
}
