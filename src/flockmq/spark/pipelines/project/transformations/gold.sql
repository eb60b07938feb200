-- Gold: each machine's measurements in windows of time, by when the broker took them. A window is written once: when
-- what came later shows that it is over.
CREATE STREAMING TABLE gold AS
SELECT window.start AS begin, window.end AS end, site, line, machine, metric,
       count(*) AS count, min(value) AS min, avg(value) AS mean, max(value) AS max
FROM STREAM silver WATERMARK timestamp DELAY OF INTERVAL ${spark.plant.lateness}
GROUP BY window(timestamp, '${spark.plant.window}'), site, line, machine, metric
