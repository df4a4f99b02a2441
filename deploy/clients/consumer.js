// node consumer.js TOPIC: prints a topic's values, by KafkaJS, as a member of a group.
const { Kafka, logLevel } = require("kafkajs");

const kafka = new Kafka({
  brokers: (process.env.KAFKA_BOOTSTRAP_SERVERS || "127.0.0.1:9092").split(","),
  logLevel: logLevel.ERROR,
});

async function main() {
  const consumer = kafka.consumer({ groupId: `readers-of-${process.argv[2]}` });
  await consumer.connect();
  await consumer.subscribe({ topic: process.argv[2], fromBeginning: true });
  await consumer.run({ eachMessage: async ({ message }) => console.log(message.value.toString()) });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
