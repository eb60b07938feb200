// Talks to a broker through MQTT.js over WebSocket and prints what it saw as one line of JSON.
//   node client.mjs PATH_OF_MQTT_JS URL VERSION
import { pathToFileURL } from "node:url";

const [library, url, version] = process.argv.slice(2);
const { default: mqtt } = await import(pathToFileURL(library));
const options = { protocolVersion: Number(version), reconnectPeriod: 0, connectTimeout: 10_000 };
const five = version === "5";
const seen = [];
const subscriber = await mqtt.connectAsync(url, {
  ...options,
  clientId: `js-subscriber-${version}`,
  will: { topic: "js/will", payload: "gone", qos: 1, retain: false },
});
const done = new Promise((resolve) => {
  subscriber.on("message", (topic, payload, packet) => {
    seen.push({
      topic,
      payload: payload.toString(),
      qos: packet.qos,
      retain: packet.retain,
      user: packet.properties?.userProperties?.origin ?? null,
    });
    if (seen.length === 4) resolve();
  });
});
const publisher = await mqtt.connectAsync(url, { ...options, clientId: `js-publisher-${version}` });
await publisher.publishAsync("js/kept", "retained", { qos: 1, retain: true });
const granted = await subscriber.subscribeAsync("js/#", { qos: 2 });
for (const qos of [0, 1, 2]) {
  await publisher.publishAsync(`js/qos${qos}`, `message ${qos}`, {
    qos,
    ...(five ? { properties: { userProperties: { origin: "js" } } } : {}),
  });
}
await done;
await publisher.publishAsync("js/kept", "", { qos: 1, retain: true });
await publisher.endAsync();
await subscriber.endAsync();
console.log(JSON.stringify({ granted: granted[0].qos, seen: seen.slice(0, 4) }));
