-- What is known of each machine until now. Computed anew in every run.
CREATE MATERIALIZED VIEW machines AS
SELECT site, line, machine, metric, count(*) AS count, round(min(value), 3) AS min, round(avg(value), 3) AS mean,
       round(max(value), 3) AS max, max(timestamp) AS last
FROM silver
GROUP BY site, line, machine, metric
