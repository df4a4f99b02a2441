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

// Node's zlib has no CRC before 20.15.
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? 0xedb88320 ^ (byte >>> 1) : byte >>> 1;
  return byte;
});

function crcOf({ key, value }) {
  let crc = -1;
  for (const data of [key, value]) for (const byte of data || []) crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}

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
    sessionTimeout: request.session_ms || 6000,
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

// The state of one command "drive": what it has reported, and the steps to come, each a method of its name.
class Drive {
  constructor(request, consumer) {
    Object.assign(this, { consumer, topic: request.topic, steps: request.steps || [] });
    this.began = Date.now();
    this.from = new Map(Object.entries(request.from).map(([partition, offset]) => [Number(partition), offset]));
    this.until = new Map(Object.entries(request.until).map(([partition, offset]) => [Number(partition), offset]));
    this.positions = new Map();
    this.pauses = new Map();
    this.records = [];
    this.heard = new Set();
  }

  hear(error) {
    const text = String(error);
    if (this.heard.has(text) || this.heard.size === 20) return;
    this.heard.add(text);
    say({ heard: text });
  }

  flush() {
    if (this.records.length) say({ read: [Date.now() - this.began, this.records] });
    this.records = [];
  }

  get isDone() {
    return this.until.size === 0;
  }

  async take(batch) {
    const { partition } = batch;
    for (const message of batch.messages) {
      const offset = Number(message.offset);
      if (!(offset >= this.from.get(partition))) continue; // from before the first seek, or not asked for
      this.from.set(partition, 0);
      this.records.push([partition, offset, crcOf(message), Number(message.timestamp)]);
      if (this.records.length === 500) this.flush();
      this.positions.set(partition, offset + 1);
      if (offset >= this.until.get(partition)) this.until.delete(partition);
      const due = this.steps.filter(({ at }) => at[0] === partition && offset >= at[1]);
      if (due.length) {
        this.flush();
        this.steps = this.steps.filter((step) => !due.includes(step));
        for (const step of due) await this[step.do](step);
        if (due.some((step) => step.do === "seek")) break;
      }
    }
    this.flush();
  }

  seekToStart() {
    if (this.hasSought) return;
    this.hasSought = true;
    this.from.forEach((offset, partition) => this.seek({ partition, to: offset }));
  }

  seek({ partition, to }) {
    if (this.positions.has(partition)) this.positions.set(partition, to); // else nothing was delivered yet
    this.consumer.seek({ topic: this.topic, partition, offset: String(to) });
  }

  pause({ partition, ms }) {
    const which = [{ topic: this.topic, partitions: [partition] }];
    this.pauses.set(partition, (this.pauses.get(partition) || 0) + 1);
    this.consumer.pause(which);
    setTimeout(() => {
      this.pauses.set(partition, this.pauses.get(partition) - 1);
      if (!this.pauses.get(partition) && !this.isDone) this.consumer.resume(which);
    }, ms);
  }

  sleep({ ms }) {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }

  async commit() {
    try {
      await this.consumer.commitOffsets(
        [...this.positions].map(([partition, offset]) => ({ topic: this.topic, partition, offset: String(offset) })),
      );
      say({ committed: Object.fromEntries(this.positions) });
    } catch (wrong) {
      this.hear(wrong);
    }
  }
}

async function drive(request) {
  let driven = null;
  const logCreator = () => ({ log }) => driven && driven.hear([log.message, log.error].filter(Boolean).join(": "));
  const consumer = new Kafka({
    clientId: request.client_id || "kafkajs",
    brokers: request.bootstrap.split(","),
    logLevel: logLevel.ERROR,
    logCreator,
  }).consumer({
    groupId: request.group || `drive-${process.pid}-${Date.now()}`,
    readUncommitted: request.isolation !== "read_committed",
    rackId: request.rack || "",
    ...request.settings,
  });
  driven = new Drive(request, consumer);
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [request.topic], fromBeginning: true });
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) =>
        payload.restart ? driven.hear(payload.error) : reject(payload.error),
      );
      // A consumer that crashes in its first join starts again, and has to seek after that.
      consumer.on(consumer.events.GROUP_JOIN, () => driven.seekToStart());
      const eachBatch = async ({ batch }) => {
        if (!driven.isDone) await driven.take(batch);
        if (driven.isDone) resolve();
      };
      consumer
        // Where a step commits, nothing else does.
        .run({ autoCommit: !driven.steps.some((step) => step.do === "commit"), eachBatch })
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
  drive,

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
