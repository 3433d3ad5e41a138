/**
 * The simulations of test/simulation again, over many more histories; WAYBILL_SEED searches elsewhere.
 */
import { commandHistory, commandWorlds } from '../simulation/command-world.ts'
import { consumerHistory, consumerWorlds } from '../simulation/consumer-world.ts'
import { relayHistory, relayWorlds } from '../simulation/relay-world.ts'
import { provePromises } from '../simulation/simulation-suite.ts'

const isFull = process.env['WAYBILL_PROOF'] === 'full'
const times = isFull ? 4 : 1

provePromises({ name: 'relay', worlds: relayWorlds, play: relayHistory, runs: 800 * times })
provePromises({ name: 'consumer', worlds: consumerWorlds, play: consumerHistory, runs: 300 * times })
provePromises({ name: 'command', worlds: commandWorlds, play: commandHistory, runs: 2_000 * times })
