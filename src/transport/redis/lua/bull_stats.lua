-- KEYS[1]: the queue's keys begin with it
-- Reply {waiting, paused, prioritized, delayed, active, failed, completed, waiting for children}
return {
    call('LLEN', base .. 'wait'), call('LLEN', base .. 'paused'), call('ZCARD', base .. 'prioritized'),
    call('ZCARD', base .. 'delayed'), call('LLEN', base .. 'active'), call('ZCARD', base .. 'failed'),
    call('ZCARD', base .. 'completed'), call('ZCARD', base .. 'waiting-children'),
}
