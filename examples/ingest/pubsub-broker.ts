/**
 * The broker's process where there is no Kafka: a local server of the Pub/Sub protocol that writes down what it confirms, so that
 * it may be killed.
 */
import { startPubsubServer } from 'waybill/testing'

const { PORT = '0', DATA_DIR = '' } = process.env
await startPubsubServer({ port: Number(PORT), dataDir: DATA_DIR })
process.send?.('ready')
