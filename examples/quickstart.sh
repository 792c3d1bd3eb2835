#!/bin/sh
# The first minute with bq: the README shows these commands, and check/quickstart.sh runs them.
export BQ_URL=sqlite:bq.db
bq publish -q orders urn:babel:orders:created '{"order":1,"item":"tea"}'
bq publish -q orders urn:babel:orders:created '{"order":2,"item":"kettle"}'
bq stats -q orders

cat > handler.sh <<'END'
#!/bin/sh
order=$(cat)
echo "attempt $((BQ_ATTEMPTS + 1)): $order"
case $order in *kettle*) [ -e in-stock ] || { echo "no kettle left" >&2; exit 1; } ;; esac
END
chmod +x handler.sh
bq work -q orders --exec ./handler.sh --drain

bq peek -q orders.dlq

touch in-stock
bq redrive -q orders
bq work -q orders --exec ./handler.sh --drain
