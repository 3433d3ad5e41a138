/**
 * The fake store of the simulations against PostgreSQL again, over many more scripts.
 */
import { proveStores } from '../simulation/store-suite.ts'

await proveStores({ runs: process.env['WAYBILL_PROOF'] === 'full' ? 300 : 60 })
