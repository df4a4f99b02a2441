// KafkaJS: full fetches of version 11, no sessions. It has no assignment: "read" is a group of its own that
// commits nothing. The conversation is that of tests/clients/__init__.py.
"use strict";

const readline = require("node:readline");
const { CompressionTypes, Kafka, logLevel } = require("kafkajs");

const CHUNK_BYTES = 16384;
const MAX_BYTES = 50 * 1024 * 1024;

const toText = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));
const fromText = (text) => (text === null ? null : Buffer.from(text, "base64"));
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");

function connect(request) {
  return new Kafka({
    clientId: request.client_id || "kafkajs",
    brokers: request.bootstrap.split(","),
    logLevel: logLevel.WARN,
    // Its default of 300 ms and five attempts gives up while a coordinator is elected.
    retry: { initialRetryTime: 100, retries: 20 },
  });
}

function tell(partition, message) {
  const headers = Object.entries(message.headers || {}).flatMap(([name, data]) =>
    (Array.isArray(data) ? data : [data]).map((each) => [name, toText(each)]),
  );
  say({
    record: [
      partition, Number(message.offset), Number(message.timestamp), toText(message.key), toText(message.value), headers,
    ],
  });
}

async function consume(request, group, commits) {
  const consumer = connect(request).consumer({
    groupId: group,
    readUncommitted: request.isolation === "read_uncommitted",
    maxBytesPerPartition: request.chunk_bytes || CHUNK_BYTES,
    maxBytes: request.max_bytes || MAX_BYTES,
    maxWaitTimeInMs: request.wait_ms || 500,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
  });
  let count = 0;
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [request.topic], fromBeginning: true });
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) =>
        payload.restart ? say({ heard: String(payload.error) }) : reject(payload.error),
      );
      consumer
        .run({
          autoCommit: false,
          eachBatchAutoResolve: true,
          eachBatch: async ({ batch }) => {
            for (const message of batch.messages) {
              tell(batch.partition, message);
              count += 1;
            }
            if (commits) {
              const offset = String(BigInt(batch.lastOffset()) + 1n);
              await consumer.commitOffsets([{ topic: request.topic, partition: batch.partition, offset }]);
              say({ committed: { [batch.partition]: Number(offset) } });
            }
            if (count >= request.count) resolve();
          },
        })
        .catch(reject);
    });
    await consumer.stop();
  } finally {
    await consumer.disconnect();
  }
  return null;
}

async function withAdmin(request, act) {
  const admin = connect(request).admin();
  await admin.connect();
  try {
    return await act(admin);
  } finally {
    await admin.disconnect();
  }
}

const commands = {
  read: (request) => consume(request, `read-${process.pid}-${Date.now()}`, false),
  group: (request) => consume(request, request.group, true),

  async produce(request) {
    const producer = connect(request).producer({ createPartitioner: () => ({ message }) => message.partition });
    await producer.connect();
    try {
      const places = await producer.send({
        topic: request.topic,
        acks: -1,
        compression: request.codec === "none" ? CompressionTypes.None : CompressionTypes.GZIP,
        messages: request.records.map(([partition, , timestamp, key, value, headers]) => ({
          partition,
          timestamp: String(timestamp),
          key: fromText(key),
          value: fromText(value),
          headers: Object.fromEntries(headers.map(([name, data]) => [name, fromText(data)])),
        })),
      });
      // It tells the first offset of each partition's batch; the records follow each other from there.
      const next = new Map(places.map((place) => [place.partition, Number(place.baseOffset)]));
      return request.records.map(([partition]) => {
        const offset = next.get(partition);
        next.set(partition, offset + 1);
        return [partition, offset];
      });
    } finally {
      await producer.disconnect();
    }
  },

  create: (request) =>
    withAdmin(request, async (admin) => {
      const topic = { topic: request.topic, numPartitions: request.partitions, replicationFactor: 2 };
      await admin.createTopics({ topics: [topic], waitForLeaders: false });
      return null;
    }),

  delete: (request) =>
    withAdmin(request, async (admin) => {
      await admin.deleteTopics({ topics: [request.topic] });
      return null;
    }),

  offsets: (request) =>
    withAdmin(request, async (admin) => {
      const found = await admin.fetchTopicOffsets(request.topic);
      return Object.fromEntries(found.map((each) => [each.partition, [Number(each.low), Number(each.high)]]));
    }),
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    try {
      say({ done: await commands[request.do](request) });
    } catch (wrong) {
      console.error(wrong);
      say({ error: String(wrong) });
    }
  }
}

main();
